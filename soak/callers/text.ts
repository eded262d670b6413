import type { Random } from '../random.ts';
import { SLOWLY, speechOf } from '../world/speech.ts';
import type { Heard } from './line.ts';

const WORDS = 'the morning train to the coast leaves from platform nine and will not wait for anybody else'.split(' ');
const LONGEST = 12;
/** Micro-USD a character, of the default model. */
const RATE = 18n;

/** A few words, so that most operations of a caller cost another amount than those beside them. */
export function drawText(random: Random): string {
  const count = random.between(1, LONGEST);
  return Array.from({ length: count }, () => random.pick(WORDS)).join(' ');
}

/** Likewise, of a text that is spoken piece by piece. */
export const drawSlowText = (random: Random): string => `${SLOWLY} ${drawText(random)}`;

/** Whether all that the text sounds like has come; false for an error and for half of it. */
export const isSpeech = ({ status, headers, isWhole, body }: Heard, text: string): boolean =>
  status === 200 && isWhole && headers['content-type'] === 'audio/mpeg' && body.length === speechOf(text).length;

/** In micro-USD (R3). */
export const priceOf = (text: string): bigint => BigInt(text.length) * RATE;
