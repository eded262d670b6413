import { createHash } from 'node:crypto';
import { silentMp3 } from '../../../test/support/silent-audio.ts';
import type { Random } from '../random.ts';
import type { HangUp, Heard } from './line.ts';

const WORDS =
  'the morning train to the coast leaves from Žďár at nine 日本 and will not wait 😀 for anybody else'.split(' ');
const LONGEST = 12;
/** Rate of the default model in micro-USD for each character. */
const RATE = 18n;

const SHORTEST_FRAMES = 4;
const LENGTHS = 4096;
const FRAME_MS = 24;
/** Prefix of a text that is spoken in chunks with pauses. */
export const SLOWLY = 'Slowly';

/** Lengths vary, so that a caller's operations mostly differ in price. */
export function drawText(random: Random): string {
  const count = random.between(1, LONGEST);
  return Array.from({ length: count }, () => random.pick(WORDS)).join(' ');
}

/** In micro-USD (R3). */
export const priceOf = (text: string): bigint => BigInt(text.length) * RATE;

/** MP3 audio whose length depends on the text, so that it identifies the text. Lasts from 0.1 to a few seconds. */
export function speechOf(text: string): Buffer {
  const drawn = createHash('sha256').update(text).digest().readUInt16BE() % LENGTHS;
  // Most of the 4096 lengths are below 100 frames, a few reach 260 frames or 50 kB.
  const frames = SHORTEST_FRAMES + Math.floor((drawn / LENGTHS) ** 2 * 256) + (text.startsWith(SLOWLY) ? 100 : 0);
  return silentMp3(frames * FRAME_MS);
}

/** True for the complete speech of the text. */
export const isSpeech = ({ status, headers, isWhole, body }: Heard, text: string): boolean =>
  status === 200 && isWhole && headers['content-type'] === 'audio/mpeg' && body.length === speechOf(text).length;

/** Maximum wait before the caller disconnects. */
const LONGEST_MS = 60;
/** About the size of the longest audio. */
const MOST_BYTES = 20_000;

/** When this caller disconnects, or undefined if it stays. */
export function drawHangUp(random: Random, share = 1): HangUp | undefined {
  if (!random.chance(share)) return undefined;
  return random.chance(0.5)
    ? { afterMs: random.between(0, LONGEST_MS) }
    : { afterBytes: random.between(0, MOST_BYTES) };
}

/** At most 64 bytes. */
export const drawBytes = (random: Random, length: number): Buffer =>
  createHash('sha512').update(String(random.share())).update(String(random.share())).digest().subarray(0, length);

export function drawId(random: Random): string {
  const hex = drawBytes(random, 16).toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
