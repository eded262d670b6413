import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createMp3Encoder } from 'wasm-media-encoders';
import { childEnv, findProgram } from '../../../lib/programs.ts';
import { holdingBack } from '../../../speech/audio-end.ts';
import { wholeAudio } from '../../../speech/whole-audio.ts';
import type { Speech } from '../../client/index.ts';
import { SAMPLE_RATE, samplesOf } from './decode.ts';

type Samples = AsyncIterable<Float32Array>;
type Encoded = AsyncGenerator<Uint8Array>;

const MP3_KILOBITS_PER_SECOND = 96;
/** Every player takes it for the size of a stream. */
const UNKNOWN_SIZE = 0xffff_ffff;

interface Format {
  readonly contentType: string;
  readonly needsFfmpeg: boolean;
  readonly encode: (samples: Samples) => Encoded;
  /** As one file, if its header has the length, which a stream lacks. */
  readonly encodeWhole?: (samples: Samples) => Encoded;
}

export const FORMATS = {
  mp3: {
    contentType: 'audio/mpeg',
    needsFfmpeg: false,
    encode: (samples) => holdingBack(encodeMp3(samples), 'audio/mpeg'),
  },
  wav: { contentType: 'audio/wav', needsFfmpeg: false, encode: encodeWave, encodeWhole: encodeWholeWave },
  pcm: { contentType: 'audio/pcm', needsFfmpeg: false, encode: encodePcm },
  flac: {
    contentType: 'audio/flac',
    needsFfmpeg: true,
    encode: (samples) => encodeStream(samples, ['-f', 'flac']),
    encodeWhole: (samples) => encodeFile(samples, ['-f', 'flac']),
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
  isWhole: boolean,
): AsyncGenerator<Uint8Array> {
  if (isPassThrough(format, contentType)) {
    yield* audio;
    return;
  }
  const { encode, encodeWhole = encode }: Format = FORMATS[format];
  yield* (isWhole ? encodeWhole : encode)(await startDecoding(samplesOf(audio, contentType, maxSeconds(characters))));
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

async function* encodePcm(samples: Samples): Encoded {
  for await (const piece of samples) {
    const bytes = Buffer.alloc(piece.length * 2);
    piece.forEach((sample, at) => {
      bytes.writeInt16LE(Math.round(Math.max(-1, Math.min(1, sample)) * 32_767), at * 2);
    });
    yield bytes;
  }
}

async function* encodeWave(samples: Samples): Encoded {
  const header = Buffer.alloc(44);
  header.write('RIFF', 0, 'latin1');
  header.writeUInt32LE(UNKNOWN_SIZE, 4);
  header.write('WAVEfmt ', 8, 'latin1');
  header.writeUInt32LE(16, 16);
  header.writeUInt16LE(1, 20);
  header.writeUInt16LE(1, 22);
  header.writeUInt32LE(SAMPLE_RATE, 24);
  header.writeUInt32LE(SAMPLE_RATE * 2, 28);
  header.writeUInt16LE(2, 32);
  header.writeUInt16LE(16, 34);
  header.write('data', 36, 'latin1');
  header.writeUInt32LE(UNKNOWN_SIZE, 40);
  yield header;
  yield* encodePcm(samples);
}

async function* encodeWholeWave(samples: Samples): Encoded {
  yield wholeAudio('audio/wav', Buffer.concat(await Readable.from(encodeWave(samples)).toArray()));
}

async function* encodeMp3(samples: Samples): Encoded {
  const lame = await createMp3Encoder();
  lame.configure({
    channels: 1,
    sampleRate: SAMPLE_RATE,
    outputSampleRate: SAMPLE_RATE,
    bitrate: MP3_KILOBITS_PER_SECOND,
  });
  // The encoder overwrites its output buffer at the next call.
  for await (const piece of samples) yield lame.encode([piece]).slice();
  yield lame.finalize().slice();
}

/** Otherwise ffmpeg looks at two seconds of samples, whose format it is told, before it encodes. */
const AT_ONCE = ['-probesize', '32', '-analyzeduration', '0'];

/** Streams the output of ffmpeg. It gets raw samples only, never bytes of the service. */
async function* encodeStream(samples: Samples, args: readonly string[], output = 'pipe:1'): Encoded {
  const input = [...AT_ONCE, '-f', 's16le', '-ar', String(SAMPLE_RATE), '-ac', '1', '-i', 'pipe:0'];
  const ffmpeg = spawn('ffmpeg', ['-v', 'error', ...input, ...args, output], {
    stdio: ['pipe', 'pipe', 'ignore'],
    env: childEnv(),
  });
  const ended = once(ffmpeg, 'close');
  const fed = pipeline(Readable.from(encodePcm(samples)), ffmpeg.stdin);
  fed.catch(() => ffmpeg.kill());
  ended.catch(() => {});
  try {
    yield* ffmpeg.stdout;
    await fed;
    const [code, killedBy] = await ended;
    if (code !== 0) throw new Error(`ffmpeg could not convert the audio (${killedBy ?? `exit code ${code}`}).`);
  } finally {
    ffmpeg.kill();
  }
}

/** For formats whose header is written last. */
async function* encodeFile(samples: Samples, args: readonly string[]): Encoded {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-'));
  try {
    const path = join(folder, 'audio');
    for await (const _ of encodeStream(samples, args, path));
    yield await readFile(path);
  } finally {
    await rm(folder, { recursive: true });
  }
}
