import { findProgram } from '../../../lib/programs.ts';
import { holdingBack } from '../../../speech/audio-end.ts';
import type { Speech } from '../../client/index.ts';
import { samplesOf } from './decode.ts';
import { encodeFile, encodeMp3, encodePcm, encodeStream, encodeWave } from './encode.ts';

interface Format {
  readonly contentType: string;
  readonly needsFfmpeg: boolean;
  /** Encoded as one piece: its length is known before it is sent. */
  readonly isWhole?: true;
  readonly encode: (samples: AsyncIterable<Float32Array>) => AsyncGenerator<Uint8Array>;
}

export const FORMATS = {
  mp3: {
    contentType: 'audio/mpeg',
    needsFfmpeg: false,
    encode: (samples) => holdingBack(encodeMp3(samples), 'audio/mpeg'),
  },
  wav: { contentType: 'audio/wav', needsFfmpeg: false, isWhole: true, encode: encodeWave },
  pcm: { contentType: 'audio/pcm', needsFfmpeg: false, encode: encodePcm },
  flac: {
    contentType: 'audio/flac',
    needsFfmpeg: true,
    isWhole: true,
    encode: (samples) => encodeFile(samples, ['-f', 'flac']),
  },
  opus: {
    contentType: 'audio/ogg; codecs=opus',
    needsFfmpeg: true,
    encode: (samples) => encodeStream(samples, ['-codec:a', 'libopus', '-b:a', '32k', '-f', 'ogg']),
  },
  aac: {
    contentType: 'audio/aac',
    needsFfmpeg: true,
    encode: (samples) => encodeStream(samples, ['-codec:a', 'aac', '-b:a', '64k', '-f', 'adts']),
  },
} as const satisfies Record<string, Format>;

export type AudioFormat = keyof typeof FORMATS;

export const isAudioFormat = (name: unknown): name is AudioFormat =>
  typeof name === 'string' && Object.hasOwn(FORMATS, name);

export const isAvailable = async (format: AudioFormat): Promise<boolean> =>
  !FORMATS[format].needsFfmpeg || (await findProgram('ffmpeg')) !== undefined;

/** Limits the length of converted audio. One second per character is slow even at half speed. */
export const maxSeconds = (characters: number): number => Math.min(60 + characters, 3_600);

export const isPassThrough = (format: AudioFormat, contentType: Speech['contentType']): boolean =>
  format === 'mp3' && contentType === 'audio/mpeg';

export async function* convertTo(
  format: AudioFormat,
  { audio, contentType }: { readonly audio: AsyncIterable<Uint8Array>; readonly contentType: Speech['contentType'] },
  characters: number,
): AsyncGenerator<Uint8Array> {
  if (isPassThrough(format, contentType)) {
    yield* audio;
    return;
  }
  yield* FORMATS[format].encode(await startDecoding(samplesOf(audio, contentType, maxSeconds(characters))));
}

/** Decodes the first samples, so that unreadable audio fails before the response headers are sent. */
async function startDecoding(samples: AsyncGenerator<Float32Array>): Promise<AsyncGenerator<Float32Array>> {
  const first = await samples.next();
  return (async function* () {
    try {
      if (!first.done) yield first.value;
      yield* samples;
    } finally {
      await samples.return(undefined);
    }
  })();
}
