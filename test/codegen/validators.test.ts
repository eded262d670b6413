import assert from 'node:assert/strict';
import fc from 'fast-check';
import { before, t, test } from 'tap';
import { written } from '../../codegen/contract-serializers.ts';
import { generate } from '../../codegen/generate.ts';
import { toJsonSchema } from '../../codegen/json-schema.ts';
import type { Schema } from '../../codegen/model.ts';
import type { Validator } from '../../src/contract/validators.js';
import { fixture, load } from './fixture.ts';

let serializers: Record<string, (body: unknown) => string>;
let validators: Record<string, Validator>;

before(async () => {
  const loaded = await load(t, fixture(), 'serializers.js', 'validators.js');
  [serializers, validators] = loaded as [typeof serializers, typeof validators];
});

function errorOf(name: string, data: unknown): string | undefined {
  const validate = validators[name] as Validator;
  if (validate(data)) return undefined;
  const error = validate.errors?.at(-1);
  return error?.params.rule ?? error?.keyword;
}

test('booleans in parameters are only true and false', async (t) => {
  const query = { text: 'a', flag: 'true' };
  t.equal(errorOf('getNoteQuery', query), undefined);
  t.strictSame(query, { text: 'a', flag: true });
  for (const flag of ['1', 'TRUE', '', 'yes']) t.equal(errorOf('getNoteQuery', { text: 'a', flag }), 'type');
});

test('a schema that strict mode refuses is reported by name', async (t) => {
  const document = fixture();
  document.paths['/notes/{noteId}'].get.parameters[2].schema.format = 'warp';
  await t.rejects(generate(JSON.stringify(document)), /getNoteQuery: unknown format "warp"/);
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
test('serializers follow the shape of a schema', async (t) => {
  for (const [name, schema, expected] of shapes) t.strictSame(written(schema), expected, name);
});

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

test('R7: a schema of OpenAPI becomes one of JSON Schema', async (t) => {
  for (const [name, schema, expected] of cases) t.strictSame(toJsonSchema(schema), expected, name);
});
