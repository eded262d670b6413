import { createMp3Encoder } from 'wasm-media-encoders';

/** A tone, from -1 to 1. */
export const tone = (hertz: number, rate: number, seconds: number, loudness = 0.5): Float32Array =>
  Float32Array.from({ length: rate * seconds }, (_, at) => loudness * Math.sin((2 * Math.PI * hertz * at) / rate));

export type Mp3Rate = 8_000 | 11_025 | 12_000 | 16_000 | 22_050 | 24_000 | 32_000 | 44_100 | 48_000;

/** A tone as MP3; of two channels, both play it. */
export async function toneMp3(hertz: number, rate: Mp3Rate, seconds: number, channels: 1 | 2 = 1): Promise<Uint8Array> {
  const encoder = await createMp3Encoder();
  encoder.configure({ channels, sampleRate: rate, outputSampleRate: rate, bitrate: rate < 32_000 ? 64 : 128 });
  const samples = tone(hertz, rate, seconds);
  const input = channels === 1 ? ([samples] as const) : ([samples, samples] as const);
  return Buffer.concat([encoder.encode(input as never).slice(), encoder.finalize().slice()]);
}

/** The pitch of a tone, in hertz: how often it rises through zero. */
export function pitch(rate: number, samples: Float32Array): number {
  let rises = 0;
  let first = 0;
  let last = 0;
  for (let at = 1; at < samples.length; at++) {
    const [before, after] = [samples[at - 1] as number, samples[at] as number];
    if (before >= 0 || after < 0) continue;
    last = at - after / (after - before);
    if (rises++ === 0) first = last;
  }
  return ((rises - 1) * rate) / (last - first);
}

/** How much of the sound is that tone: 1 for nothing else. */
export function share(hertz: number, rate: number, samples: Float32Array): number {
  let [sine, cosine, all] = [0, 0, 0];
  samples.forEach((sample, at) => {
    const angle = (2 * Math.PI * hertz * at) / rate;
    sine += sample * Math.sin(angle);
    cosine += sample * Math.cos(angle);
    all += sample * sample;
  });
  return (2 * (sine * sine + cosine * cosine)) / samples.length / all;
}

export interface WaveKind {
  readonly encoding: 'int' | 'float' | 'adpcm' | 'mulaw';
  readonly bits: number;
  /** Of a sample; the bits' by default. */
  readonly bytes?: number;
  readonly isExtensible?: boolean;
  readonly channels?: number;
  readonly rate?: number;
}

const WAVE_TAGS = { int: 1, adpcm: 2, float: 3, mulaw: 7 };
const EXTENSIBLE_TAG = 0xfffe;
/** What follows the tag in the GUID of a subformat. */
const SUBFORMAT = '00000000001000800000aa00389b71';

/** A tone as a WAV file of this kind; of one that is compressed, the data is noise. */
export function toneWave(hertz: number, seconds: number, kind: WaveKind): Buffer {
  const { encoding, bits, bytes = Math.ceil(bits / 8), isExtensible = false, channels = 1, rate = 24_000 } = kind;
  const frame = bytes * channels;
  const format = Buffer.alloc(isExtensible ? 40 : 16);
  format.writeUInt16LE(isExtensible ? EXTENSIBLE_TAG : WAVE_TAGS[encoding], 0);
  format.writeUInt16LE(channels, 2);
  format.writeUInt32LE(rate, 4);
  format.writeUInt32LE(rate * frame, 8);
  format.writeUInt16LE(frame, 12);
  format.writeUInt16LE(isExtensible ? bytes * 8 : bits, 14);
  if (isExtensible) {
    format.writeUInt16LE(22, 16);
    format.writeUInt16LE(bits, 18);
    format.writeUInt16LE(WAVE_TAGS[encoding], 24);
    format.write(SUBFORMAT.slice(2), 26, 'hex');
  }
  const samples = tone(hertz, rate, seconds);
  const data = Buffer.alloc(samples.length * frame);
  samples.forEach((sample, at) => {
    for (let channel = 0; channel < channels; channel++) {
      const place = at * frame + channel * bytes;
      const full = 2 ** (bytes * 8 - 1);
      if (encoding === 'float' && bits === 64) data.writeDoubleLE(sample, place);
      else if (encoding === 'float') data.writeFloatLE(sample, place);
      else if (bytes === 1) data.writeUInt8(Math.round(sample * 127) + 128, place);
      else data.writeIntLE(Math.round(sample * (full - 1)), place, bytes);
    }
  });
  const chunk = (name: string, content: Buffer) => {
    const header = Buffer.alloc(8);
    header.write(name, 'latin1');
    header.writeUInt32LE(content.length, 4);
    return Buffer.concat([header, content, Buffer.alloc(content.length % 2)]);
  };
  const body = Buffer.concat([Buffer.from('WAVE'), chunk('fmt ', format), chunk('data', data)]);
  return chunk('RIFF', body);
}
