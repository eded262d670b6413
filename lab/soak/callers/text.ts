import type { Random } from '../random.ts';
import { SLOWLY, speechOf } from '../world/speech.ts';
import type { Heard } from './line.ts';

const WORDS =
  'the morning train to the coast leaves from Žďár at nine 日本 and will not wait 😀 for anybody else'.split(' ');
const LONGEST = 12;
/** Rate of the default model in micro-USD for each character. */
const RATE = 18n;

/** Lengths vary, so that a caller's operations mostly differ in price. */
export function drawText(random: Random): string {
  const count = random.between(1, LONGEST);
  return Array.from({ length: count }, () => random.pick(WORDS)).join(' ');
}

export const drawSlowText = (random: Random): string => `${SLOWLY} ${drawText(random)}`;

/** True for the complete speech of the text. */
export const isSpeech = ({ status, headers, isWhole, body }: Heard, text: string): boolean =>
  status === 200 && isWhole && headers['content-type'] === 'audio/mpeg' && body.length === speechOf(text).length;

/** In micro-USD (R3). */
export const priceOf = (text: string): bigint => BigInt(text.length) * RATE;
