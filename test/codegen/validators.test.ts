import assert from 'node:assert/strict';
import { before, t, test } from 'tap';
import { generate } from '../../codegen/generate.ts';
import type { Validator } from '../../src/contract/validators.js';
import { fixture, load } from './fixture.ts';

let validators: Record<string, Validator>;

before(async () => {
  [validators] = (await load(t, fixture(), 'validators.js')) as [typeof validators];
});

function errorOf(name: string, data: unknown): string | undefined {
  const validate = validators[name] as Validator;
  if (validate(data)) return undefined;
  const error = validate.errors?.at(-1);
  return error?.params.rule ?? error?.keyword;
}

test('x-text counts UTF-16 code units of the trimmed string and refuses what is no text (R1, R2)', async (t) => {
  const cases: [string, string, string | undefined][] = [
    ['shortest', 'a', undefined],
    ['longest', 'abcde', undefined],
    ['one too many', 'abcdef', 'maxLength'],
    ['blanks around it do not count', `${' '.repeat(50)}abcde\n\t\u00a0\u3000`, undefined],
    ['blanks inside count', 'ab  cd', 'maxLength'],
    ['empty', '', 'minLength'],
    ['only blanks', ' \n\u2003 ', 'minLength'],
    ['an emoji counts two', '😀😀a', undefined],
    ['three emoji count six', '😀😀😀', 'maxLength'],
    ['lone high surrogate', 'a\ud83d', 'wellFormed'],
    ['lone low surrogate', '\ude00a', 'wellFormed'],
    ['surrogates in the wrong order', '\ude00\ud83d', 'wellFormed'],
    ['U+0000', 'a\0b', 'wellFormed'],
    ['U+0000 and too long', 'abcdef\0', 'wellFormed'],
  ];
  for (const [name, text, rule] of cases) {
    t.test(name, async () => assert.equal(errorOf('getNoteQuery', { text }), rule));
  }

  t.test('the cap of the model is not checked here, the rest is (R7)', async () => {
    assert.equal(errorOf('createNoteTextBody', 'a'.repeat(5000)), undefined);
    assert.equal(errorOf('createNoteTextBody', '  '), 'minLength');
    assert.equal(errorOf('createNoteTextBody', 'a\0'), 'wellFormed');
  });
});

test('numbers in parameters are plain decimals (R51)', async (t) => {
  for (const [text, value] of [
    ['1', 1],
    ['0.5', 0.5],
    ['1.50', 1.5],
    ['2', 2],
  ] as const) {
    t.test(`${text} is a number`, async () => {
      const query = { text: 'a', speed: text };
      assert.equal(errorOf('getNoteQuery', query), undefined);
      assert.deepEqual(query, { text: 'a', speed: value });
    });
  }
  for (const text of ['1e0', '0x1', ' 1', '1 ', '+1', '', '.5', '1.', '1,5', '１', 'NaN', 'Infinity', 'true', '1\n']) {
    t.test(`${JSON.stringify(text)} is none`, async () =>
      assert.equal(errorOf('getNoteQuery', { text: 'a', speed: text }), 'type'),
    );
  }
  t.test('its range is checked', async () => {
    assert.equal(errorOf('getNoteQuery', { text: 'a', speed: '0.49' }), 'minimum');
    assert.equal(errorOf('getNoteQuery', { text: 'a', speed: '2.01' }), 'maximum');
    assert.equal(errorOf('getNoteQuery', { text: 'a', speed: '-1' }), 'minimum');
    assert.equal(errorOf('getNoteQuery', { text: 'a', count: '0' }), 'exclusiveMinimum');
    assert.equal(errorOf('getNoteQuery', { text: 'a', count: '1.5' }), 'type');
    assert.equal(errorOf('getNoteQuery', { text: 'a', count: '9'.repeat(400) }), 'type');
  });
});

test('booleans in parameters are true and false', async () => {
  const query = { text: 'a', flag: 'true' };
  assert.equal(errorOf('getNoteQuery', query), undefined);
  assert.deepEqual(query, { text: 'a', flag: true });
  for (const flag of ['1', 'TRUE', '', 'yes']) assert.equal(errorOf('getNoteQuery', { text: 'a', flag }), 'type');
});

test('a parameter given twice is refused (R49)', async () => {
  assert.equal(errorOf('getNoteQuery', { text: ['a', 'b'] }), 'type');
  assert.equal(errorOf('getNoteQuery', { text: 'a', speed: ['1', '1'] }), 'type');
});

test('undeclared parameters are ignored, required ones are required', async () => {
  assert.equal(errorOf('getNoteQuery', { text: 'a', other: 'b' }), undefined);
  assert.equal(errorOf('getNoteQuery', {}), 'required');
  assert.equal(errorOf('getNoteParams', { noteId: '' }), 'minLength');
});

test('headers are named in lower case', async () => {
  assert.equal(errorOf('getNoteHeaders', { 'x-key': '123456789' }), 'maxLength');
  const headers = { 'x-expiry': '1700000000', host: 'example' };
  assert.equal(errorOf('getNoteHeaders', headers), undefined);
  assert.equal(headers['x-expiry'], 1700000000);
});

test('a JSON body is not coerced, a form is', async () => {
  assert.equal(errorOf('createNoteJsonBody', { text: 'a', speed: '1' }), 'anyOf');
  const form = { amount: '500', name: '7' };
  assert.equal(errorOf('orderFormFormBody', form), undefined);
  assert.deepEqual(form, { amount: 500, name: '7' });
});

test('either alternative of a body passes, with unknown members (R51)', async () => {
  assert.equal(errorOf('createNoteJsonBody', { text: 'a', other: [1] }), undefined);
  assert.equal(errorOf('createNoteJsonBody', { quoteToken: 'a' }), undefined);
  assert.equal(errorOf('createNoteJsonBody', { other: 1 }), 'anyOf');
  assert.equal(errorOf('createNoteJsonBody', null), 'anyOf');
});

test('a schema that the strict mode refuses is named', async () => {
  const document = fixture();
  document.paths['/notes/{noteId}'].get.parameters[2].schema.format = 'warp';
  await assert.rejects(generate(JSON.stringify(document)), /getNoteQuery: unknown format "warp"/);
});
