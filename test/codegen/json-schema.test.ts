import assert from 'node:assert/strict';
import { test } from 'tap';
import { toJsonSchema } from '../../codegen/json-schema.ts';
import type { Schema } from '../../codegen/model.ts';

const cases: [string, Schema, object][] = [
  ['nullable becomes a type', { type: 'string', nullable: true }, { type: ['string', 'null'] }],
  [
    'a nullable enum admits null',
    { type: 'string', enum: ['a'], nullable: true },
    { type: ['string', 'null'], enum: ['a', null] },
  ],
  [
    'a nullable composition admits null beside it',
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
  ['an object without a type gets it', { properties: {} }, { type: 'object', properties: {} }],
  [
    'x-text takes the lengths over',
    { type: 'string', minLength: 1, maxLength: 9, 'x-text': {} },
    { type: 'string', 'x-text': { minLength: 1, maxLength: 9 } },
  ],
  [
    'with a cap of the model the longest length is documentation (R7)',
    { type: 'string', minLength: 1, maxLength: 9, 'x-text': { cap: 'model' } },
    { type: 'string', 'x-text': { minLength: 1 } },
  ],
];

for (const [name, schema, expected] of cases) {
  test(name, async () => assert.deepEqual(toJsonSchema(schema), expected));
}
