import { type Encoded, samplesOf } from './samples.ts';

type Encode = (samples: AsyncIterable<Float32Array>) => AsyncGenerator<Uint8Array>;

interface Format {
  readonly contentType: string;
  /** The encoder is loaded when it is asked for first. */
  readonly encoder: () => Promise<Encode>;
}

/** What `response_format` may be, by OpenAI's names. */
export const FORMATS = {
  mp3: { contentType: 'audio/mpeg', encoder: async () => (await import('./mp3.ts')).encodeMp3 },
  wav: { contentType: 'audio/wav', encoder: async () => (await import('./pcm.ts')).encodeWave },
  pcm: { contentType: 'audio/pcm', encoder: async () => (await import('./pcm.ts')).encodePcm },
  flac: { contentType: 'audio/flac', encoder: async () => (await import('./flac.ts')).encodeFlac },
  opus: { contentType: 'audio/ogg; codecs=opus', encoder: async () => (await import('./opus.ts')).encodeOpus },
  aac: { contentType: 'audio/aac', encoder: async () => (await import('./aac.ts')).encodeAac },
} as const satisfies Record<string, Format>;

export type AudioFormat = keyof typeof FORMATS;

export const isAudioFormat = (name: unknown): name is AudioFormat =>
  typeof name === 'string' && Object.hasOwn(FORMATS, name);

/** The longest that a text may be spoken when it is converted: a second a character is slow at half the speed. */
export const mostSeconds = (characters: number): number => Math.min(60 + characters, 3_600);

/** MP3 that came as such is what it is asked for already. */
export const isPassedOn = (format: AudioFormat, contentType: Encoded['contentType']): boolean =>
  format === 'mp3' && contentType === 'audio/mpeg';

/** Speech in the format that is asked for, as it is made. */
export async function* inFormat(format: AudioFormat, speech: Encoded, characters: number): AsyncGenerator<Uint8Array> {
  if (isPassedOn(format, speech.contentType)) {
    yield* speech.audio;
    return;
  }
  const encode: Encode = await FORMATS[format].encoder();
  yield* encode(await begun(samplesOf(speech, mostSeconds(characters))));
}

/** The same samples, once there is a first one: some formats have a header that must not be sent for what can't be decoded. */
async function begun(samples: AsyncGenerator<Float32Array>): Promise<AsyncGenerator<Float32Array>> {
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
