import { MAX_AUDIO_BYTES, type Utterance } from '../provider.ts';
import { soundsOf, wordsOf } from './segments.ts';

/**
 * The longest that each may sound with any of the voices, in seconds at their natural pace: measured over all of them
 * with every printable character, alone and mixed, and with what flite spells out or takes for an abbreviation.
 */
const SECONDS_PER_DIGIT = 0.6;
const SECONDS_PER_SYMBOL = 0.9;
const SECONDS_PER_SOUND = 0.165;
/** In sounds, for each word. */
const PLAIN_WORD = 2;
/** An abbreviation such as CA or Feb. is read as the word that it stands for. */
const OTHER_WORD = 4;

/** Kilobits per second of the audio, which is of constant bit rate. */
export const kilobitsPerSecond = ({ model }: Pick<Utterance, 'model'>): 48 | 96 => (model === 'tts-1-hd' ? 96 : 48);

/** The longest audio of one utterance in seconds: as much as is accepted of any provider. */
export const maxAudioSeconds = (utterance: Pick<Utterance, 'model'>): number =>
  Math.floor(MAX_AUDIO_BYTES / ((kilobitsPerSecond(utterance) * 1000) / 8)) - 1;

/**
 * How long the utterance may sound, at most, in seconds. A text is bounded in characters, not in time: 4096 digits take
 * 24 minutes, or 48 at half the speed, and a single character may stand for a sentence.
 */
export function longestSeconds(utterance: Utterance): number {
  const known = lengths.get(utterance);
  if (known !== undefined) return known;
  const seconds = naturalSeconds(utterance.text) / utterance.speed;
  lengths.set(utterance, seconds);
  return seconds;
}

/** An utterance is asked about more than once. */
const lengths = new WeakMap<Utterance, number>();

function naturalSeconds(text: string): number {
  let seconds = 0;
  for (const word of wordsOf(text)) {
    if (/[a-z]/i.test(word)) {
      const overhead = /^[a-z]+,?$/.test(word) ? PLAIN_WORD : OTHER_WORD;
      seconds += (overhead + soundsOf(word)) * SECONDS_PER_SOUND;
    } else {
      const digits = word.match(/\d/g)?.length ?? 0;
      seconds += digits * SECONDS_PER_DIGIT + (word.length - digits) * SECONDS_PER_SYMBOL;
    }
  }
  return seconds;
}
