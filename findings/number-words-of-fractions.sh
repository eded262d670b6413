#!/usr/bin/env bash
# number-to-words 1.2.4, written-number 0.11.1, to-words 5.7.0: "$0.99" is spoken as zero, as one, or in lakhs.
#
# They turn digits into words before a text is spoken. number-to-words drops the fraction (0.99 is `zero`, 1.5 `one`, and
# an ordinal `first`), written-number rounds it (`one`, `two`) and has no words at all for a negative number. Neither
# fails or warns, so a listener hears another price. to-words keeps fractions, but its default is the English of India:
# a million is `Ten Lakh`, unless `localeCode: 'en-US'` is given. Split a decimal number before the first two see it.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund number-to-words@1.2.4 written-number@0.11.1 to-words@5.7.0
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import numberToWords from 'number-to-words';
import { ToWords } from 'to-words';
import writtenNumber from 'written-number';

const indian = new ToWords();
const american = new ToWords({ localeCode: 'en-US' });
const seen = [0.99, 1.5, -3, 1_000_000].map((number) => ({
  number,
  'number-to-words': numberToWords.toWords(number),
  'written-number': writtenNumber(number),
  'to-words': indian.convert(number),
  'to-words, en-US': american.convert(number),
}));
console.table(seen);
assert.deepEqual(seen.map(({ number, ...words }) => Object.values(words)), [
  ['zero', 'one', 'Zero Point Ninety Nine', 'Zero Point Ninety Nine'],
  ['one', 'two', 'One Point Five', 'One Point Five'],
  ['minus three', '', 'Minus Three', 'Minus Three'],
  ['one million', 'one million', 'Ten Lakh', 'One Million'],
]);
assert.equal(numberToWords.toWordsOrdinal(1.5), 'first');
JS
node run.mjs
