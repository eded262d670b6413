import assert from 'node:assert/strict';
import { before, t, test } from 'tap';
import type { Validator } from '../../src/contract/validators.js';
import { type Location, violation } from '../../src/http/validation.ts';
import { fixture, load } from '../codegen/fixture.ts';

let validators: Record<string, Validator>;

before(async () => {
  const document = fixture();
  const [plain, quoted] = [document.components.schemas.Plain, document.components.schemas.Quoted];
  plain.properties.details = { type: 'object', properties: { agent: { type: 'string', maxLength: 3 } } };
  quoted.properties.account = { type: 'string', pattern: '^0x[a-f]+$' };
  [validators] = (await load(t, document, 'validators.js')) as [typeof validators];
});

function violationOf(name: string, location: Location, data: unknown) {
  const validate = validators[name] as Validator;
  assert.equal(validate(data), false);
  return violation(validate.errors ?? [], location);
}

test('a violation names field, rule and way out', async (t) => {
  const cases: [string, Location, unknown, ReturnType<typeof violation>][] = [
    [
      'getNoteQuery',
      'query',
      { text: 'a', speed: '3' },
      {
        code: 'INVALID_SPEED',
        message: 'speed must be a number from 0.5 to 2',
        details: { field: 'speed', location: 'query', rule: 'maximum', minimum: 0.5, maximum: 2 },
      },
    ],
    [
      'getNoteQuery',
      'query',
      { text: 'a', speed: '1e0' },
      {
        code: 'INVALID_SPEED',
        message: 'speed must be a number from 0.5 to 2',
        details: { field: 'speed', location: 'query', rule: 'type', minimum: 0.5, maximum: 2 },
      },
    ],
    [
      'getNoteQuery',
      'query',
      { text: 'abcdef' },
      {
        code: 'INVALID_REQUEST',
        message: 'text must be a string of 1 to 5 characters after trimming. Use POST.',
        details: { field: 'text', location: 'query', rule: 'maxLength', minLength: 1, maxLength: 5, hint: 'Use POST.' },
      },
    ],
    [
      'getNoteQuery',
      'query',
      { text: 'a\ud800' },
      {
        code: 'INVALID_REQUEST',
        message: 'text must be well-formed text: no lone surrogate, no U+0000. Use POST.',
        details: {
          field: 'text',
          location: 'query',
          rule: 'wellFormed',
          minLength: 1,
          maxLength: 5,
          hint: 'Use POST.',
        },
      },
    ],
    [
      'getNoteQuery',
      'query',
      { text: 'a', count: '0' },
      {
        code: 'INVALID_REQUEST',
        message: 'count must be a whole number above 0',
        details: { field: 'count', location: 'query', rule: 'exclusiveMinimum', exclusiveMinimum: 0 },
      },
    ],
    [
      'getNoteQuery',
      'query',
      { text: 'a', kind: 'wide' },
      {
        code: 'INVALID_REQUEST',
        message: 'kind must be one of long, short',
        details: { field: 'kind', location: 'query', rule: 'enum', allowed: ['long', 'short'] },
      },
    ],
    [
      'getNoteQuery',
      'query',
      {},
      {
        code: 'INVALID_REQUEST',
        message: 'text is required. Use POST.',
        details: { field: 'text', location: 'query', rule: 'required', minLength: 1, maxLength: 5, hint: 'Use POST.' },
      },
    ],
    [
      'getNoteHeaders',
      'header',
      { 'x-key': '123456789' },
      {
        code: 'INVALID_REQUEST',
        message: 'x-key must be a string of at most 8 characters',
        details: { field: 'x-key', location: 'header', rule: 'maxLength', maxLength: 8 },
      },
    ],
    [
      'getNoteParams',
      'path',
      { noteId: '' },
      {
        code: 'INVALID_REQUEST',
        message: 'noteId must be a string of at least 1 character',
        details: { field: 'noteId', location: 'path', rule: 'minLength', minLength: 1 },
      },
    ],
    [
      'createNoteTextBody',
      'body',
      ' ',
      {
        code: 'INVALID_REQUEST',
        message: 'body must be a string of at least 1 character after trimming',
        details: { field: 'body', location: 'body', rule: 'minLength', minLength: 1 },
      },
    ],
  ];
  for (const [name, location, data, expected] of cases) {
    t.test(expected.message, async () => assert.deepEqual(violationOf(name, location, data), expected));
  }
});

test('a parameter given twice is INVALID_REQUEST, whatever its own code (R49)', async () => {
  assert.deepEqual(violationOf('getNoteQuery', 'query', { text: 'a', speed: ['1', '2'] }), {
    code: 'INVALID_REQUEST',
    message: 'speed must be given once',
    details: { field: 'speed', location: 'query', rule: 'once' },
  });
});

test('of alternatives, the violation of the one that got furthest is told', async (t) => {
  const cases: [unknown, string, string, string][] = [
    [{}, 'text', 'INVALID_REQUEST', 'text or quoteToken is required'],
    [{ text: 5 }, 'text', 'INVALID_REQUEST', 'text must be a string of 1 to 10 characters after trimming'],
    [{ text: 'a'.repeat(11) }, 'text', 'TEXT_TOO_LONG', 'text must be a string of 1 to 10 characters after trimming'],
    [{ text: 'a', speed: 3 }, 'speed', 'INVALID_REQUEST', 'speed must be a number from 0.5 to 2'],
    [{ quoteToken: '' }, 'quoteToken', 'INVALID_REQUEST', 'quoteToken must be a string of 1 to 20 characters'],
    [
      { quoteToken: 'a', account: '0X' },
      'account',
      'INVALID_REQUEST',
      'account must be a string that matches ^0x[a-f]+$',
    ],
    [
      { text: 'a', details: { agent: 'long' } },
      'details.agent',
      'INVALID_REQUEST',
      'details.agent must be a string of at most 3 characters',
    ],
    [{ text: 'a', details: [] }, 'details', 'INVALID_REQUEST', 'details must be an object'],
    [[], 'body', 'INVALID_REQUEST', 'body must be an object'],
  ];
  for (const [body, field, code, message] of cases) {
    t.test(message, async () => {
      const found = violationOf('createNoteJsonBody', 'body', body);
      assert.deepEqual([found.details.field, found.code, found.message], [field, code, message]);
    });
  }
});

test('the value is never repeated (R40)', async () => {
  const secret = 'correct horse battery staple';
  for (const data of [
    { text: secret },
    { text: 'a', speed: secret },
    { text: 'a', kind: secret },
    { text: 'a', flag: secret },
  ]) {
    assert.doesNotMatch(JSON.stringify(violationOf('getNoteQuery', 'query', data)), /horse/);
  }
});
