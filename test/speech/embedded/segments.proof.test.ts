import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { segmentsOf } from '../../../src/speech/embedded/segments.ts';

const segments = (text: string) => [...segmentsOf(text)];

test('whatever the text, segments are short, printable ASCII, of short words and short digit runs', async () => {
  const anyText = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 600 }),
    fc.string({ unit: 'grapheme', maxLength: 600 }),
  );
  fc.assert(
    fc.property(anyText, (text) => {
      for (const segment of segments(text)) {
        assert.match(segment, /^[!-~]+( [!-~]+)*$/);
        assert.ok(segment.length <= 200, segment);
        assert.doesNotMatch(segment, /[!-~]{25}/);
        assert.doesNotMatch(segment, /\d{7}/);
      }
    }),
  );
});

test('no word of a plain text is lost, doubled or moved', async () => {
  const word = fc.stringMatching(/^[a-z]{1,24}$/);
  fc.assert(
    fc.property(fc.array(word, { maxLength: 200 }), (words) => {
      assert.deepEqual(segments(words.join(' ')).join(' '), words.join(' '));
    }),
  );
});

test('a text that fits is one segment', async () => {
  assert.deepEqual(segments('Hello there. How are you?'), ['Hello there. How are you?']);
});

test('a long text is cut where a sentence ends, else where a clause ends, else between words', async () => {
  const sentence = `${'word '.repeat(20)}end.`;
  assert.deepEqual(segments(`${sentence} ${sentence}`), [sentence, sentence]);
  const clause = `${'word '.repeat(20)}end,`;
  assert.deepEqual(segments(`${clause} ${clause}`), [clause, clause]);
  assert.deepEqual(
    segments('word '.repeat(60)).map((segment) => segment.split(' ').length),
    [40, 20],
  );
});

test('what is spelled out makes segments shorter: digits, symbols, words without a vowel', async () => {
  const longest = (text: string) => Math.max(...segments(text).map((segment) => segment.length));
  for (const text of ['7 ', '777777 ', '# ', 'w']) assert.ok(longest(text.repeat(1000)) <= 60, text);
});

test('a long digit run is read digit by digit', async () => {
  assert.deepEqual(segments('call 5551234567 in 2024'), ['call 5 5 5 1 2 3 4 5 6 7 in 2024']);
});

test('letters with marks are spoken without them', async () => {
  assert.deepEqual(segments('Übergröße'), ['Ubergrosse']);
  assert.deepEqual(segments('e\u0301'), ['e']);
});

test('an emoji is read by its name', async () => {
  assert.deepEqual(segments('well done 😂'), ['well done joy']);
});

test('a line end is the end of a sentence, unless the line has an end of its own', async () => {
  assert.deepEqual(segments('Title\n\nOne, \r\ntwo.\nthree'), ['Title. One, two. three']);
});

test('nothing to speak makes no segments', async () => {
  for (const text of ['\n\n', '\u202e\u200f', '\u0301', '\ud800', '\u0000']) assert.deepEqual(segments(text), []);
});
