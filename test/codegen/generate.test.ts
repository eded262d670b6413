import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { generate, HEADING } from '../../codegen/generate.ts';
import { fixture, load } from './fixture.ts';

test('the same contract gives the same text, under the heading', async () => {
  const yaml = JSON.stringify(fixture());
  const [first, second] = [await generate(yaml), await generate(yaml)];
  assert.deepEqual([...first.keys()].sort(), [...second.keys()].sort());
  for (const [name, text] of first) {
    assert.equal(second.get(name), text, name);
    assert.ok(text.startsWith(HEADING), name);
  }
});

test('types: int64 is a bigint, binary is bytes, free-form objects are JSON, null stays', async () => {
  const types = (await generate(JSON.stringify(fixture()))).get('types.ts') ?? '';
  for (const line of [
    'balance: bigint;',
    'owed?: bigint | null;',
    '"audio/mpeg": Uint8Array;',
    'details: JsonObject | null;',
    'endedAt: string | null;',
    'speed?: number;',
  ]) {
    assert.ok(types.includes(line), line);
  }
});

test('a route tells the edge all it needs', async () => {
  const [{ routes }, validators, serializers] = await load(
    t,
    fixture(),
    'routes.ts',
    'validators.js',
    'serializers.js',
  );
  assert.deepEqual(routes[0], {
    operationId: 'getNote',
    tag: 'notes',
    method: 'GET',
    path: '/notes/:noteId',
    listed: 1,
    noHead: true,
    admission: {
      edge: 'unless-verified',
      credential: 'x-key',
      window: { by: 'ip', when: ['failed-credential'] },
    },
    query: ['text', 'speed', 'count', 'flag', 'kind'],
    headers: ['x-key', 'x-expiry'],
    consumes: [],
    bodyRequired: false,
    validate: {
      params: validators.getNoteParams,
      query: validators.getNoteQuery,
      headers: validators.getNoteHeaders,
    },
    responses: {
      200: { produces: ['application/json'], serialize: serializers.getNote200 },
      400: {
        produces: ['application/json'],
        serialize: serializers.error400,
        errorCodes: ['INVALID_REQUEST', 'INVALID_SPEED'],
      },
      404: { produces: ['application/json'], serialize: serializers.error400, errorCodes: ['NOT_FOUND'] },
    },
  });
  assert.deepEqual(routes[1].validate, {
    body: { 'application/json': validators.createNoteJsonBody, 'text/plain': validators.createNoteTextBody },
  });
  assert.equal(routes[1].bodyLimit, 1024);
  assert.deepEqual(routes[1].responses[200], { produces: ['audio/mpeg', 'audio/wav'] });
  assert.equal(routes[2].tag, 'orderForms');
  assert.equal(routes[2].bodyRequired, false);
  assert.deepEqual(routes[2].responses[303], { produces: [] });
});
