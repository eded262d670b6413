import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import fc from 'fast-check';
import { before, t, test } from 'tap';
import { readContract } from '../../codegen/contract.ts';
import { written } from '../../codegen/contract-serializers.ts';
import { generate } from '../../codegen/generate.ts';
import { toJsonSchema } from '../../codegen/json-schema.ts';
import type { Schema } from '../../codegen/model.ts';
import { type DeclaredResponses, generateResponseValidators } from '../../codegen/response-validators.ts';
import type { Validator } from '../../src/contract/validators.js';
import { fixture, load, workspace } from './fixture.ts';

let declared: DeclaredResponses;

before(async () => {
  const path = join(await workspace(t), 'responses.js');
  await writeFile(path, generateResponseValidators(readContract(JSON.stringify(fixture()))));
  declared = await import(pathToFileURL(path).href);
});
let serializers: Record<string, (body: unknown) => string>;

before(async () => {
  [serializers] = (await load(t, fixture(), 'serializers.js')) as [typeof serializers];
});

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

test('R1, R2: x-text counts UTF-16 code units of trimmed, well-formed text', async (t) => {
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
    t.test(name, async (t) => t.equal(errorOf('getNoteQuery', { text }), rule));
  }

  t.test('R7: the validator does not check the cap of the model', async (t) => {
    t.equal(errorOf('createNoteTextBody', 'a'.repeat(5000)), undefined);
    t.equal(errorOf('createNoteTextBody', '  '), 'minLength');
    t.equal(errorOf('createNoteTextBody', 'a\0'), 'wellFormed');
  });
});

test('R51: numbers in parameters are plain decimals', async (t) => {
  for (const [text, value] of [
    ['1', 1],
    ['0.5', 0.5],
    ['1.50', 1.5],
    ['2', 2],
  ] as const) {
    t.test(`${text} is a number`, async (t) => {
      const query = { text: 'a', speed: text };
      t.equal(errorOf('getNoteQuery', query), undefined);
      t.strictSame(query, { text: 'a', speed: value });
    });
  }
  for (const text of ['1e0', '0x1', ' 1', '1 ', '+1', '', '.5', '1.', '1,5', '１', 'NaN', 'Infinity', 'true', '1\n']) {
    t.test(`${JSON.stringify(text)} is not a number`, async (t) =>
      t.equal(errorOf('getNoteQuery', { text: 'a', speed: text }), 'type'),
    );
  }
  t.test('the range of a number is checked', async (t) => {
    t.equal(errorOf('getNoteQuery', { text: 'a', speed: '0.49' }), 'minimum');
    t.equal(errorOf('getNoteQuery', { text: 'a', speed: '2.01' }), 'maximum');
    t.equal(errorOf('getNoteQuery', { text: 'a', speed: '-1' }), 'minimum');
    t.equal(errorOf('getNoteQuery', { text: 'a', count: '0' }), 'exclusiveMinimum');
    t.equal(errorOf('getNoteQuery', { text: 'a', count: '1.5' }), 'type');
    t.equal(errorOf('getNoteQuery', { text: 'a', count: '9'.repeat(400) }), 'type');
  });
});

test('booleans in parameters are only true and false', async (t) => {
  const query = { text: 'a', flag: 'true' };
  t.equal(errorOf('getNoteQuery', query), undefined);
  t.strictSame(query, { text: 'a', flag: true });
  for (const flag of ['1', 'TRUE', '', 'yes']) t.equal(errorOf('getNoteQuery', { text: 'a', flag }), 'type');
});

test('R49: a parameter given twice is refused', async (t) => {
  t.equal(errorOf('getNoteQuery', { text: ['a', 'b'] }), 'type');
  t.equal(errorOf('getNoteQuery', { text: 'a', speed: ['1', '1'] }), 'type');
});

test('undeclared parameters are ignored, and missing required ones are refused', async (t) => {
  t.equal(errorOf('getNoteQuery', { text: 'a', other: 'b' }), undefined);
  t.equal(errorOf('getNoteQuery', {}), 'required');
  t.equal(errorOf('getNoteParams', { noteId: '' }), 'minLength');
});

test('headers are validated by their lower-case names', async (t) => {
  t.equal(errorOf('getNoteHeaders', { 'x-key': '123456789' }), 'maxLength');
  const headers = { 'x-expiry': '1700000000', host: 'example' };
  t.equal(errorOf('getNoteHeaders', headers), undefined);
  t.equal(headers['x-expiry'], 1700000000);
});

test('types are coerced in forms, but not in JSON bodies', async (t) => {
  t.equal(errorOf('createNoteJsonBody', { text: 'a', speed: '1' }), 'anyOf');
  const form = { amount: '500', name: '7' };
  t.equal(errorOf('orderFormFormBody', form), undefined);
  t.strictSame(form, { amount: 500, name: '7' });
});

test('R51: either alternative of a body passes, with unknown members', async (t) => {
  t.equal(errorOf('createNoteJsonBody', { text: 'a', other: [1] }), undefined);
  t.equal(errorOf('createNoteJsonBody', { quoteToken: 'a' }), undefined);
  t.equal(errorOf('createNoteJsonBody', { other: 1 }), 'anyOf');
  t.equal(errorOf('createNoteJsonBody', null), 'anyOf');
});

test('a schema that strict mode refuses is reported by name', async (t) => {
  const document = fixture();
  document.paths['/notes/{noteId}'].get.parameters[2].schema.format = 'warp';
  await t.rejects(generate(JSON.stringify(document)), /getNoteQuery: unknown format "warp"/);
});

const response = (operationId: string, status: number) => {
  const found = declared.operations.find((operation) => operation.operationId === operationId)?.responses[status];
  assert.ok(found);
  return found;
};

test('response headers are validated as received text', async (t) => {
  const { headers, headerNames } = response('getNote', 200);
  t.strictSame(headerNames, ['x-trace-id', 'x-balance', 'x-limit']);
  t.equal(headers({ 'x-trace-id': 'a', 'x-balance': '12' }), true);
  t.equal(headers({ 'x-trace-id': 'a' }), false);
  t.equal(headers({ 'x-trace-id': 'a', 'x-balance': '1.5' }), false);
});

test('a response body is validated by its media type', async (t) => {
  const json = response('getNote', 200).content['application/json'];
  const body = { id: 'a', balance: 1, endedAt: null, state: null, details: null, result: null };
  t.equal(json?.(body), true);
  t.equal(json?.({ ...body, state: 'lost' }), false);
  t.equal(json?.({ ...body, result: { id: 'a' } }), false);
  t.strictSame(Object.keys(response('orderForm', 400).content), ['text/html', 'application/json']);
  t.equal(response('createNote', 200).content['audio/mpeg'], null, 'audio is not validated');
});

test('responses of the edge are validated too', async (t) => {
  const json = declared.edgeResponses[404]?.content['application/json'];
  const error = { error: { code: 'NOT_FOUND', message: 'm', details: { any: [1] } } };
  t.equal(json?.(error), true);
  t.equal(json?.({ error: { ...error.error, code: 'OTHER' } }), false);
  t.equal(declared.edgeHeaders.headers({ 'x-frame-options': 'DENY' }), true);
  t.equal(declared.edgeHeaders.headers({ 'x-frame-options': 'SAMEORIGIN' }), false);
});

const note = {
  id: 'a"\\\u2028\n😀',
  balance: 1,
  endedAt: '2030-01-01T00:00:00Z',
  state: 'open',
  owed: null,
  details: { any: [1, { deep: 'ü' }], nothing: null },
  result: { id: 'b', balance: 2 },
  tags: ['x', 'y'],
  rate: 0.000018,
};

test('serializes like JSON.stringify, including members of every allOf part', async (t) => {
  t.strictSame(JSON.parse(serializers.getNote200?.(note) ?? ''), note);
  const few = { id: 'a', balance: 1, endedAt: null, state: null, details: null, result: null };
  t.strictSame(JSON.parse(serializers.getNote200?.(few) ?? ''), few, 'null stays null, absent stays absent');
});

test('serializes any note like JSON.stringify', async () => {
  const record = fc.record(
    {
      id: fc.string({ unit: 'binary' }),
      balance: fc.maxSafeInteger(),
      endedAt: fc.option(fc.date({ noInvalidDate: true }).map((date) => date.toISOString())),
      state: fc.constantFrom('open', 'closed', null),
      owed: fc.option(fc.maxSafeInteger()),
      details: fc.option(fc.dictionary(fc.string(), fc.jsonValue())),
      tags: fc.array(fc.string({ unit: 'binary' }), { maxLength: 200 }),
      rate: fc.double({ noNaN: true, noDefaultInfinity: true }),
    },
    { requiredKeys: ['id', 'balance', 'endedAt', 'state', 'details'] },
  );
  fc.assert(
    fc.property(record, (value) => {
      assert.deepEqual(JSON.parse(serializers.getNote200?.(value) ?? ''), JSON.parse(JSON.stringify(value)));
    }),
  );
});

test('serializes an int64 from a bigint without loss', async (t) => {
  const json = serializers.getNote200?.({ ...note, balance: 9007199254740993n, owed: -1n }) ?? '';
  t.match(json, /"balance":9007199254740993[,}]/);
  t.match(json, /"owed":-1[,}]/);
});

test('omits undeclared members and refuses a body without a required one', async (t) => {
  const json = serializers.getNote200?.({ ...note, secret: 's', result: { ...note.result, secret: 's' } }) ?? '';
  t.notMatch(json, /secret/);
  const { balance: _balance, ...incomplete } = note;
  t.throws(() => serializers.getNote200?.(incomplete), /balance/);
});

test('serializes a structured error with free-form details', async (t) => {
  const error = { error: { code: 'NOT_FOUND', message: 'It\'s "gone"', details: { a: [{ b: null }], c: undefined } } };
  t.equal(serializers.error400?.(error), JSON.stringify(error));
});

test('differently written errors of one status have separate serializers', async (t) => {
  const contract = fixture();
  const { post } = contract.paths['/notes'];
  const { schema } = post.responses[400].content['application/json'];
  schema.allOf.push({ type: 'object', properties: { hint: { type: 'string' } } });
  const [own] = (await load(t, contract, 'serializers.js')) as [typeof serializers];
  const error = { error: { code: 'INVALID_REQUEST', message: 'No.', details: null } };
  const hinted = { ...error, hint: 'Say more.' };
  t.equal(own.error400?.(hinted), JSON.stringify(error));
  t.equal(own[`${post.operationId}400`]?.(hinted), JSON.stringify(hinted));
});

const shapes: [string, Schema, object][] = [
  ['a free-form object is left to JSON.stringify', { type: 'object', additionalProperties: true }, {}],
  ['a list of free-form objects is left to JSON.stringify', { type: 'array', items: { type: 'object' } }, {}],
  ['a fraction in an integer is not truncated', { type: 'integer' }, { type: 'number' }],
  [
    'alternatives merge their members',
    {
      oneOf: [
        { type: 'object', required: ['a', 'c'], properties: { a: { type: 'string' }, c: { type: 'string' } } },
        {
          type: 'object',
          required: ['b', 'c'],
          properties: { b: { type: 'string' }, c: { type: 'string', nullable: true } },
        },
      ],
    },
    {
      type: 'object',
      properties: { a: { type: 'string' }, b: { type: 'string' }, c: { type: 'string', nullable: true } },
      required: ['c'],
      additionalProperties: false,
    },
  ],
  [
    'alternatives of different types are left to JSON.stringify',
    { oneOf: [{ type: 'string' }, { type: 'number' }] },
    {},
  ],
];
for (const [name, schema, expected] of shapes) {
  test(name, async (t) => t.strictSame(written(schema), expected));
}

test('an int64 among alternatives of other types is refused', async (t) => {
  const schema: Schema = { anyOf: [{ type: 'integer', format: 'int64' }, { type: 'string' }] };
  t.throws(() => written(schema), /int64 is not supported/);
});

const cases: [string, Schema, object][] = [
  ['nullable becomes the type null', { type: 'string', nullable: true }, { type: ['string', 'null'] }],
  [
    'a nullable enum admits null',
    { type: 'string', enum: ['a'], nullable: true },
    { type: ['string', 'null'], enum: ['a', null] },
  ],
  [
    'a nullable composition also admits null',
    { nullable: true, allOf: [{ type: 'string' }] },
    { anyOf: [{ allOf: [{ type: 'string' }] }, { type: 'null' }] },
  ],
  [
    'boolean exclusive bounds become bounds',
    { type: 'number', minimum: 0, exclusiveMinimum: true, maximum: 2, exclusiveMaximum: false },
    { type: 'number', exclusiveMinimum: 0, maximum: 2 },
  ],
  [
    'annotations are dropped, also of members',
    { type: 'object', title: 'T', properties: { title: { type: 'string', example: 'x', default: 'y' } } },
    { type: 'object', properties: { title: { type: 'string' } } },
  ],
  ['an object schema without a type gets one', { properties: {} }, { type: 'object', properties: {} }],
  [
    'x-text takes over the length limits',
    { type: 'string', minLength: 1, maxLength: 9, 'x-text': {} },
    { type: 'string', 'x-text': { minLength: 1, maxLength: 9 } },
  ],
  [
    'R7: with a model cap, maxLength is only documentation',
    { type: 'string', minLength: 1, maxLength: 9, 'x-text': { cap: 'model' } },
    { type: 'string', 'x-text': { minLength: 1 } },
  ],
];

for (const [name, schema, expected] of cases) {
  test(name, async (t) => t.strictSame(toJsonSchema(schema), expected));
}
