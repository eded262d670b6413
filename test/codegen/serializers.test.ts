import assert from 'node:assert/strict';
import fc from 'fast-check';
import { before, t, test } from 'tap';
import { written } from '../../codegen/contract-serializers.ts';
import type { Schema } from '../../codegen/model.ts';
import { fixture, load } from './fixture.ts';

let serializers: Record<string, (body: unknown) => string>;

before(async () => {
  [serializers] = (await load(t, fixture(), 'serializers.js')) as [typeof serializers];
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

test('writes what JSON.stringify writes, members of every part of an allOf included', async () => {
  assert.deepEqual(JSON.parse(serializers.getNote200?.(note) ?? ''), note);
  const few = { id: 'a', balance: 1, endedAt: null, state: null, details: null, result: null };
  assert.deepEqual(JSON.parse(serializers.getNote200?.(few) ?? ''), few, 'null stays null, absent stays absent');
});

test('writes any note as JSON.stringify does', async () => {
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

test('writes an int64 from a bigint without loss', async () => {
  const json = serializers.getNote200?.({ ...note, balance: 9007199254740993n, owed: -1n }) ?? '';
  assert.match(json, /"balance":9007199254740993[,}]/);
  assert.match(json, /"owed":-1[,}]/);
});

test('leaves undeclared members out, and refuses to write a body without a required one', async () => {
  const json = serializers.getNote200?.({ ...note, secret: 's', result: { ...note.result, secret: 's' } }) ?? '';
  assert.doesNotMatch(json, /secret/);
  const { balance: _balance, ...incomplete } = note;
  assert.throws(() => serializers.getNote200?.(incomplete), /balance/);
});

test('writes a structured error with free details', async () => {
  const error = { error: { code: 'NOT_FOUND', message: 'It\'s "gone"', details: { a: [{ b: null }], c: undefined } } };
  assert.equal(serializers.error400?.(error), JSON.stringify(error));
});

test('errors of one status that are written in different ways have serializers of their own', async (t) => {
  const contract = fixture();
  const { post } = contract.paths['/notes'];
  const { schema } = post.responses[400].content['application/json'];
  schema.allOf.push({ type: 'object', properties: { hint: { type: 'string' } } });
  const [own] = (await load(t, contract, 'serializers.js')) as [typeof serializers];
  const error = { error: { code: 'INVALID_REQUEST', message: 'No.', details: null } };
  const hinted = { ...error, hint: 'Say more.' };
  assert.equal(own.error400?.(hinted), JSON.stringify(error));
  assert.equal(own[`${post.operationId}400`]?.(hinted), JSON.stringify(hinted));
});

const shapes: [string, Schema, object][] = [
  ['a free-form object is left to JSON.stringify', { type: 'object', additionalProperties: true }, {}],
  ['so is a list of them', { type: 'array', items: { type: 'object' } }, {}],
  ['a fraction in an integer is not cut', { type: 'integer' }, { type: 'number' }],
  [
    'alternatives join their members',
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
  test(name, async () => assert.deepEqual(written(schema), expected));
}

test('an int64 among alternatives of other types is refused, since JSON.stringify throws on a bigint', async () => {
  const schema: Schema = { anyOf: [{ type: 'integer', format: 'int64' }, { type: 'string' }] };
  assert.throws(() => written(schema), /int64 is not supported/);
});
