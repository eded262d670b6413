import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { before, t, test } from 'tap';
import { readContract } from '../../codegen/contract.ts';
import { type DeclaredResponses, generateResponseValidators } from '../../codegen/response-validators.ts';
import { fixture, workspace } from './fixture.ts';

let declared: DeclaredResponses;

before(async () => {
  const path = join(await workspace(t), 'responses.js');
  await writeFile(path, generateResponseValidators(readContract(JSON.stringify(fixture()))));
  declared = await import(pathToFileURL(path).href);
});

const response = (operationId: string, status: number) => {
  const found = declared.operations.find((operation) => operation.operationId === operationId)?.responses[status];
  assert.ok(found);
  return found;
};

test('headers are checked as they are received', async () => {
  const { headers, headerNames } = response('getNote', 200);
  assert.deepEqual(headerNames, ['x-trace-id', 'x-balance', 'x-limit']);
  assert.equal(headers({ 'x-trace-id': 'a', 'x-balance': '12' }), true);
  assert.equal(headers({ 'x-trace-id': 'a' }), false);
  assert.equal(headers({ 'x-trace-id': 'a', 'x-balance': '1.5' }), false);
});

test('a body is checked by its media type', async () => {
  const json = response('getNote', 200).content['application/json'];
  const body = { id: 'a', balance: 1, endedAt: null, state: null, details: null, result: null };
  assert.equal(json?.(body), true);
  assert.equal(json?.({ ...body, state: 'lost' }), false);
  assert.equal(json?.({ ...body, result: { id: 'a' } }), false);
  assert.deepEqual(Object.keys(response('orderForm', 400).content), ['text/html', 'application/json']);
  assert.equal(response('createNote', 200).content['audio/mpeg'], null, 'audio is not validated');
});

test('so is what the edge answers', async () => {
  const json = declared.edgeResponses[404]?.content['application/json'];
  const error = { error: { code: 'NOT_FOUND', message: 'm', details: { any: [1] } } };
  assert.equal(json?.(error), true);
  assert.equal(json?.({ error: { ...error.error, code: 'OTHER' } }), false);
  assert.equal(declared.edgeHeaders.headers({ 'x-frame-options': 'DENY' }), true);
  assert.equal(declared.edgeHeaders.headers({ 'x-frame-options': 'SAMEORIGIN' }), false);
});
