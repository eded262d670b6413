import { createHash } from 'node:crypto';
import type { Random } from '../random.ts';
import type { HangUp } from './line.ts';

/** Maximum wait before the caller disconnects. */
const LONGEST_MS = 60;
/** About the size of the longest audio. */
const MOST_BYTES = 20_000;

/** At most 64 bytes. */
export const drawBytes = (random: Random, length: number): Buffer =>
  createHash('sha512').update(String(random.share())).update(String(random.share())).digest().subarray(0, length);

export function drawId(random: Random): string {
  const hex = drawBytes(random, 16).toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/** When this caller disconnects, or undefined if it stays. */
export function drawHangUp(random: Random, share: number): HangUp | undefined {
  if (!random.chance(share)) return undefined;
  return random.chance(0.5)
    ? { afterMs: random.between(0, LONGEST_MS) }
    : { afterBytes: random.between(0, MOST_BYTES) };
}
