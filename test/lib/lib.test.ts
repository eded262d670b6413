import { open } from 'node:fs/promises';
import { devNull } from 'node:os';
import canonicalizer from 'canonicalize';
import fc from 'fast-check';
import t, { test } from 'tap';
import { canonicalize } from '../../src/lib/canonical-json.ts';
import { closeOnFailure } from '../../src/lib/close-on-failure.ts';
import { counted } from '../../src/lib/counted.ts';
import { readMoment } from '../../src/lib/moment.ts';
import { serviceWords } from '../../src/lib/service-words.ts';
import { readEnd } from '../../src/operators/report/books.ts';

test('a number of one has no plural', async (t) => {
  const told = [0, 1, 2, 1n].map((number) => counted(number, 'part'));
  t.strictSame(told, ['0 parts', '1 part', '2 parts', '1 part']);
});

test('a moment is a calendar day, or a date with time and zone', async (t) => {
  for (const [text, at] of [
    ['2026-11-01', '2026-11-01T00:00:00.000Z'],
    ['2024-02-29', '2024-02-29T00:00:00.000Z'],
    ['2026-11-01T09:00Z', '2026-11-01T09:00:00.000Z'],
    ['2026-11-01 09:00:30.5+0200', '2026-11-01T07:00:30.500Z'],
    ['2026-11-01T00:30:00-05:00', '2026-11-01T05:30:00.000Z'],
  ] as const) {
    t.equal(readMoment(text)?.toISOString(), at, text);
  }
  for (const text of [
    ...['', '2026-11', '2026-02-29', '2026-02-30T10:00Z', '2026-11-01T09:00', '2026-11-01T25:00Z'],
    ...['1.11.2026', '2026-11-01Z', ' 2026-11-01', '2026-11-01T09:00+2'],
  ]) {
    t.equal(readMoment(text), undefined, text);
  }
});

test('a period that ends on a day includes the whole day', async (t) => {
  t.equal(readEnd('2026-11-30')?.toISOString(), '2026-12-01T00:00:00.000Z');
  t.equal(readEnd('2026-11-30T12:00Z')?.toISOString(), '2026-11-30T12:00:00.000Z');
  t.equal(readEnd('soon'), undefined);
});

const CASES: readonly (readonly [what: string, text: string, words: string])[] = [
  ['plain text is unchanged', 'Insufficient credit.', 'Insufficient credit.'],
  ['letters of all scripts and emoji are unchanged', 'Größe 語 नमस्ते 👩‍🚀 ✌️', 'Größe 語 नमस्ते 👩‍🚀 ✌️'],
  ['whitespace becomes one space', '  one\r\n\ttwo\u2028three\u00a0 four ', 'one two three four'],
  ['escape characters are removed', '\u001b[2J\u009b1mred\u0007', '[2J1mred'],
  ['direction marks are removed', 'abc\u202egnp.exe\u2066x\u200f', 'abcgnp.exex'],
  ['invisible tags and selectors are removed', 'pay\u{e0070}\u{e0061}\u{e0100} me\u3164\u200b', 'pay me'],
  ['private use characters and lone surrogates are removed', 'a\ue000\ud800b', 'ab'],
  ['a word that is only unprintable leaves one space', 'a \u0000 b', 'a b'],
  ['300 characters are unchanged', 'x'.repeat(300), 'x'.repeat(300)],
  ['longer text is cut', 'x'.repeat(301), `${'x'.repeat(299)}…`],
  ['no character is split', '🎈'.repeat(301), `${'🎈'.repeat(299)}…`],
  ['unprintable text becomes empty', '\n\u0000', ''],
];

for (const [what, text, words] of CASES) {
  t.test(`a service message: ${what}`, async (t) => t.equal(serviceWords(text), words));
}

test('canonical JSON is that of the canonicalize package, byte for byte', async (t) => {
  const serialize = canonicalizer as unknown as (value: unknown) => string;
  const same = (value: object) => t.equal(canonicalize(value), serialize(value), JSON.stringify(value));
  same({ b: [{ d: 1, c: null }], a: 'é€\ud800', A: 1e21, $: -0, '': true });
  same({ x: { b: 1, 10: 2, 9: 3, a: 4 }, '01': 5 });
  same(JSON.parse('{"b":{"__proto__":{"z":1,"y":2}},"a":{"toJSON":1,"constructor":2}}'));
  same({ b: undefined, a: [undefined, new Date(0)] });
  same(Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`n${(index * 7) % 40}`, index])));
  t.throws(() => canonicalize({ a: [Number.POSITIVE_INFINITY] }), /Infinity is not allowed/);

  const name = fc.oneof(fc.constantFrom('a', 'b', '0', '10', '9', '-1', '__proto__', 'toJSON', '$schema'), fc.string());
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 5 },
      fc.oneof(fc.string({ unit: 'binary' }), fc.double({ noNaN: true, noDefaultInfinity: true }), fc.boolean()),
      fc.constant(null),
      fc.array(tie('value'), { maxLength: 5 }),
      fc.dictionary(name, tie('value'), { maxKeys: 20 }),
    ),
  }));
  fc.assert(
    fc.property(fc.dictionary(name, value), (given) => canonicalize(given) === serialize(given)),
    { numRuns: 2_000 },
  );
});

test('a file is closed if its setup fails, and stays open if it succeeds', async (t) => {
  const file = await open(devNull);
  t.equal(await closeOnFailure(file, async () => 'done'), 'done');
  t.not(file.fd, -1);
  const setup = () => Promise.reject(new Error('setup failed'));
  await t.rejects(closeOnFailure(file, setup), { message: 'setup failed' });
  t.equal(file.fd, -1, 'closed');
});
