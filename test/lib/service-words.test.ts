import t from 'tap';
import { serviceWords } from '../../src/lib/service-words.ts';

const CASES: readonly (readonly [what: string, text: string, words: string])[] = [
  ['plain text stays', 'Insufficient credit.', 'Insufficient credit.'],
  ['letters of all scripts and emoji stay', 'Größe 語 नमस्ते 👩‍🚀 ✌️', 'Größe 語 नमस्ते 👩‍🚀 ✌️'],
  ['whitespace becomes one space', '  one\r\n\ttwo\u2028three\u00a0 four ', 'one two three four'],
  ['escape sequences lose their escape', '\u001b[2J\u009b1mred\u0007', '[2J1mred'],
  ['marks of direction go', 'abc\u202egnp.exe\u2066x\u200f', 'abcgnp.exex'],
  ['invisible tags and selectors go', 'pay\u{e0070}\u{e0061}\u{e0100} me\u3164\u200b', 'pay me'],
  ['private use and lone surrogates go', 'a\ue000\ud800b', 'ab'],
  ['a word that is only unprintable leaves one space', 'a \u0000 b', 'a b'],
  ['300 characters stay', 'x'.repeat(300), 'x'.repeat(300)],
  ['more are cut', 'x'.repeat(301), `${'x'.repeat(299)}…`],
  ['no character is cut into halves', '🎈'.repeat(301), `${'🎈'.repeat(299)}…`],
  ['nothing stays nothing', '\n\u0000', ''],
];

for (const [what, text, words] of CASES) {
  t.test(`a service's words: ${what}`, async (t) => t.equal(serviceWords(text), words));
}
