import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { splitForListener, splitText } from '../../src/speech/split-text.ts';

const FILLER = 'The quick brown fox jumps over the lazy dog and runs on without a stop until it is tired';

test('a text is split at the last paragraph, sentence, clause or word within the limit', async (t) => {
  const rows: [text: string, limit: number, parts: string[]][] = [
    ['Hello world', 11, ['Hello world']],
    ['Hello world', 10, ['Hello ', 'world']],
    ['One. Two.\n\nThree. Four.', 18, ['One. Two.\n\n', 'Three. Four.']],
    ['One, two. Three, four. Five', 23, ['One, two. Three, four. ', 'Five']],
    ['One, two. Three, four', 20, ['One, two. ', 'Three, four']],
    ['He met Dr. Smith, and left', 20, ['He met Dr. Smith, ', 'and left']],
    ['See e.g. the book, not me', 20, ['See e.g. the book, ', 'not me']],
    ['It ended\nat a line. Then more', 22, ['It ended\nat a line. ', 'Then more']],
    ['one two; three four', 17, ['one two; ', 'three four']],
    ['a list:\nfirst\nsecond', 16, ['a list:\nfirst\n', 'second']],
    ['It costs 1,234.56 dollars', 13, ['It costs ', '1,234.56 ', 'dollars']],
    ['It has 12 345 678 people', 14, ['It has ', '12 345 678 ', 'people']],
    ['See https://a.example/?b=c. Go', 28, ['See https://a.example/?b=c. ', 'Go']],
    ['See https://a.example/?b=c, yes', 22, ['See ', 'https://a.example/?b=c', ', yes']],
    ['我喜欢。你呢？他也是', 9, ['我喜欢。你呢？', '他也是']],
    ['我喜欢、你也喜欢', 6, ['我喜欢、', '你也喜欢']],
    ['สวัสดีครับผม', 8, ['สวัสดี', 'ครับผม']],
    ['👩‍👩‍👧‍👦👩‍👩‍👧‍👦', 15, ['👩‍👩‍👧‍👦', '👩‍👩‍👧‍👦']],
    ['cafe\u0301 cafe\u0301', 7, ['cafe\u0301 ', 'cafe\u0301']],
  ];
  for (const [text, limit, parts] of rows) t.strictSame(splitText(text, limit), { outcome: 'split', parts }, text);
});

test('a text without a place to split tells where that begins', async (t) => {
  const url = `https://a.example/${'x'.repeat(100)}`;
  const rows: [text: string, limit: number, offset: number][] = [
    ['x'.repeat(101), 100, 0],
    [`${FILLER}. ${url}`, 100, FILLER.length + 2],
    [`${'1,'.repeat(60)}1`, 100, 0],
    [`Zalgo: e${'\u0301'.repeat(120)}`, 100, 7],
  ];
  for (const [text, limit, offset] of rows) {
    t.strictSame(splitText(text, limit), { outcome: 'unsplittable', offset }, text);
  }
});

test('for a listener the first sentence is alone, and each part at most twice what is before', async (t) => {
  const long = 'This one is a sentence of forty letters. ';
  const rows: [text: string, limit: number, parts: string[]][] = [
    ['Hello world', 500, ['Hello world']],
    ['Hello world', 10, ['Hello ', 'world']],
    ['Hello there. It is me.', 500, ['Hello there. ', 'It is me.']],
    ['Dr. Smith came.\nHe left.', 500, ['Dr. Smith came.\n', 'He left.']],
    ['Title\n\nIt begins. It goes on.', 500, ['Title\n\n', 'It begins. ', 'It goes on.']],
    [`${'A, '.repeat(50)}end. Yes.`, 100, ['A, '.repeat(33), `${'A, '.repeat(17)}end. Yes.`]],
    [long.repeat(9), 500, [long, long.repeat(2), long.repeat(6)]],
    [long.repeat(9), 100, [long, ...Array(4).fill(long.repeat(2))]],
    ['See https://a.example/?B=c now. Go.', 500, ['See https://a.example/?B=c now. ', 'Go.']],
    [`https://a.example/?${'B'.repeat(60)}`, 100, [`https://a.example/?${'B'.repeat(60)}`]],
  ];
  for (const [text, limit, parts] of rows) {
    t.strictSame(splitForListener(text, limit), { outcome: 'split', parts }, text);
  }
});

const PIECES = [
  ...['word', 'Hello', 'Dr.', 'e.g.', 'end.', 'clause,', '“quoted.”', '…', '—', '\n', '\n\n', '\r\n\r\n', '  ', '\t'],
  ...['https://a.example/b?c=d,e.f', 'www.example.com/x', '1,234.56', '12 345 678', '2026-11-29', '٣٫١٤', '10:30'],
  ...['我喜欢。', '日本語、', 'สวัสดีครับ', '👩‍👩‍👧‍👦', '🇩🇪', 'e\u0301', '각', '𝒳', 'नमस्ते'],
];
const either = fc.constantFrom(splitText, splitForListener);
const WHOLE = ['https://a.example/b?c=d,e.f', 'www.example.com/x', '1,234.56', '12 345 678', '2026-11-29'];

test('parts join to the text, fit, and break no grapheme, number or web address', async () => {
  const clusters = new Intl.Segmenter(undefined, { granularity: 'grapheme' });
  const texts = fc.array(fc.constantFrom(...PIECES), { minLength: 1, maxLength: 120 }).map((all) => all.join(' '));
  fc.assert(
    fc.property(either, texts, fc.integer({ min: 40, max: 300 }), (splitter, text, limit) => {
      const split = splitter(text, limit);
      assert.ok(split.outcome === 'split');
      assert.equal(split.parts.join(''), text);
      const whole = WHOLE.flatMap((each) =>
        [...text.matchAll(new RegExp(each.replace(/[.?]/g, '\\$&'), 'g'))].map(({ index }) => [
          index,
          index + each.length,
        ]),
      );
      const starts = new Set([...clusters.segment(text)].map(({ index }) => index));
      let at = 0;
      for (const part of split.parts) {
        assert.ok(part.length > 0 && part.length <= limit);
        assert.ok(starts.has(at), `inside a grapheme at ${at}`);
        assert.ok(!whole.some(([start = 0, end = 0]) => start < at && at < end), `inside a number or address at ${at}`);
        at += part.length;
      }
    }),
    { numRuns: 500 },
  );
});

test('any text is split or refused, also one that nobody wrote', async () => {
  const texts = fc.string({ unit: 'binary', maxLength: 400 });
  fc.assert(
    fc.property(either, texts, fc.integer({ min: 1, max: 60 }), (splitter, text, limit) => {
      const split = splitter(text, limit);
      if (split.outcome === 'unsplittable') return assert.ok(split.offset >= 0 && split.offset + limit < text.length);
      assert.equal(split.parts.join(''), text);
      for (const part of split.parts) assert.ok(part.length <= limit);
    }),
  );
});
