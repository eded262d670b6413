import anyAscii from 'any-ascii';

const MAX_WORD_LENGTH = 24;
const MAX_DIGIT_RUN = 6;
const MAX_SEGMENT_COST = 200;

/** Cuts a text into printable ASCII for flite, in bounded parts: flite's time and memory grow faster than its input. */
export function* segmentsOf(text: string): Generator<string> {
  let words: string[] = [];
  let cost = 0;
  for (const word of wordsOf(text)) {
    const wordCost = soundsOf(word);
    if (cost + wordCost > MAX_SEGMENT_COST) {
      const end = bestEnd(words);
      yield words.slice(0, end).join(' ');
      words = words.slice(end);
      cost = words.reduce((sum, each) => sum + soundsOf(each), 0);
    }
    words.push(word);
    cost += wordCost;
  }
  if (words.length > 0) yield words.join(' ');
}

function wordsOf(text: string): string[] {
  return toSpeakableAscii(text)
    .split(' ')
    .flatMap((word) => word.match(new RegExp(`.{1,${MAX_WORD_LENGTH}}`, 'g')) ?? []);
}

function toSpeakableAscii(text: string): string {
  return anyAscii(text)
    .replace(/:([a-z][a-z0-9_]*):/g, ' $1 ')
    .replace(/(?<=[^.!?,;:\s])\s*[\r\n]\s*/g, '. ')
    .replace(/[^!-~]|_/g, ' ')
    .replace(new RegExp(`\\d{${MAX_DIGIT_RUN + 1},}`, 'g'), (digits) => ` ${[...digits].join(' ')} `);
}

/** flite spells out digits, symbols and words without a vowel. */
function soundsOf(word: string): number {
  const spelled = /[aeiouy]/i.test(word) ? (word.match(/[^a-z.,!?'-]/gi)?.length ?? 0) : word.length;
  return 1 + word.length + 5 * spelled;
}

function bestEnd(words: readonly string[]): number {
  for (const ending of [/[.!?]["')\]]*$/, /[,;:]["')\]]*$/]) {
    const last = words.findLastIndex((word) => ending.test(word));
    if (last >= 0) return last + 1;
  }
  return words.length;
}
