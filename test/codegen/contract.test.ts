import assert from 'node:assert/strict';
import { test } from 'tap';
import { readContract } from '../../codegen/contract.ts';
import { fixture } from './fixture.ts';

test('reads operations with path-level parameters, lower-case headers and declared error codes', async () => {
  const contract = readContract(JSON.stringify(fixture()));
  assert.deepEqual(
    contract.operations.map(({ id, tag, method, path }) => [id, tag, method, path]),
    [
      ['getNote', 'notes', 'GET', '/notes/{noteId}'],
      ['createNote', 'notes', 'POST', '/notes'],
      ['orderForm', 'order-forms', 'POST', '/order-forms'],
    ],
  );
  const [getNote, createNote] = contract.operations;
  assert.deepEqual(
    getNote?.parameters.map(({ in: place, name }) => `${place} ${name}`),
    [
      'path noteId',
      'query text',
      'query speed',
      'query count',
      'query flag',
      'query kind',
      'header x-key',
      'header x-expiry',
    ],
  );
  assert.deepEqual(
    getNote?.responses.map(({ status, errorCodes }) => [status, errorCodes]),
    [
      [200, []],
      [400, ['INVALID_REQUEST', 'INVALID_SPEED']],
      [404, ['NOT_FOUND']],
    ],
  );
  assert.equal(getNote?.responses[0]?.content[0]?.name, 'Note');
  assert.equal(createNote?.body?.limit, 1024);
  assert.deepEqual(
    contract.edgeResponses.map(({ status, errorCodes }) => [status, errorCodes]),
    [
      [204, []],
      [404, ['NOT_FOUND']],
    ],
  );
});

type Document = ReturnType<typeof fixture>;
const getNote = (document: Document) => document.paths['/notes/{noteId}'].get;

const mistakes: [string, (document: Document) => void, RegExp][] = [
  ['another OpenAPI version', (d) => (d.openapi = '3.1.0'), /openapi must be 3\.0\.3/],
  ['no operationId', (d) => delete getNote(d).operationId, /GET \/notes\/\{noteId\}: operationId/],
  [
    'an operationId twice',
    (d) => (d.paths['/notes'].post.operationId = 'getNote'),
    /operationId getNote is declared twice/,
  ],
  ['no admission', (d) => delete getNote(d)['x-admission'], /GET \/notes\/\{noteId\}: x-admission is missing/],
  [
    'an edge limit that is unknown',
    (d) => (d.paths['/notes'].post['x-admission'] = { edge: 'never' }),
    /POST \/notes: x-admission edge is never; known are always, unless-verified/,
  ],
  [
    'an unknown member of an admission',
    (d) => (getNote(d)['x-admission'].window.until = 'noon'),
    /x-admission has an unknown member until/,
  ],
  [
    'requests that verify without a credential',
    (d) => delete getNote(d)['x-admission'].credential,
    /x-admission names the header of a credential exactly where edge is unless-verified/,
  ],
  [
    'a credential for nothing',
    (d) => (getNote(d)['x-admission'].edge = 'always'),
    /x-admission names the header of a credential exactly where edge is unless-verified/,
  ],
  [
    'a credential that is no declared header',
    (d) => (getNote(d)['x-admission'].credential = 'text'),
    /x-admission credential text is no header that the operation declares/,
  ],
  [
    'a window by an unknown key',
    (d) => (getNote(d)['x-admission'].window.by = 'moon'),
    /x-admission window\.by is moon; known are account/,
  ],
  [
    'a window that never takes a slot',
    (d) => (getNote(d)['x-admission'].window.when = []),
    /x-admission window\.when must list/,
  ],
  [
    'a window that takes a slot for an unknown reason',
    (d) => (getNote(d)['x-admission'].window.when = ['rain']),
    /x-admission window\.when is rain; known are request/,
  ],
  ['no tag', (d) => delete getNote(d).tags, /GET \/notes\/\{noteId\}: exactly one tag/],
  ['an undeclared tag', (d) => (getNote(d).tags = ['ghosts']), /tag ghosts is not declared/],
  ['a position twice', (d) => (d.paths['/notes'].post['x-listed'] = 1), /x-listed 1 is declared twice/],
  ['a $ref to nothing', (d) => (getNote(d).responses[404].$ref = '#/components/responses/Gone'), /Gone names nothing/],
  [
    'a recursive schema',
    (d) => (d.components.schemas.Base.properties.id = { $ref: '#/components/schemas/Base' }),
    /contains itself/,
  ],
  [
    'a header in two spellings',
    (d) => getNote(d).parameters.push({ name: 'x-key', in: 'header', schema: { type: 'string' } }),
    /header x-key is declared twice/,
  ],
  [
    'a cookie',
    (d) => getNote(d).parameters.push({ name: 'id', in: 'cookie', schema: { type: 'string' } }),
    /only path, query and header/,
  ],
  [
    'a parameter that is no scalar',
    (d) => getNote(d).parameters.push({ name: 'ids', in: 'query', schema: { type: 'array' } }),
    /parameter ids: schema must have one of the types/,
  ],
  ['an undeclared path parameter', (d) => delete d.paths['/notes/{noteId}'].parameters, /path parameters declared/],
  ['a default response', (d) => (getNote(d).responses.default = { description: '' }), /a status must be a number/],
  [
    'an error whose codes are open',
    (d) =>
      (getNote(d).responses[404] = {
        content: { 'application/json': { schema: { $ref: '#/components/schemas/StructuredError' } } },
      }),
    /404: error\.code admits any string/,
  ],
  [
    'an edge response without code',
    (d) => (d['x-edge-responses'][408] = { description: '' }),
    /408 declares no error code/,
  ],
  [
    'an x-error-code that no response declares',
    (d) => (getNote(d).parameters[1].schema['x-error-code'] = 'TOO_FAST'),
    /x-error-code TOO_FAST is declared in none/,
  ],
  ['an unknown extension', (d) => (getNote(d)['x-speed'] = 1), /x-speed: unknown extension; known are .*x-listed/],
  [
    'an extension where it is not read',
    (d) => (getNote(d).parameters[1]['x-error-hint'] = 'No.'),
    /x-error-hint is only read beside/,
  ],
];

for (const [name, change, message] of mistakes) {
  test(`refuses a contract with ${name}`, async () => {
    const document = fixture();
    change(document);
    assert.throws(() => readContract(JSON.stringify(document)), message);
  });
}

test('names all mistakes at once', async () => {
  const document = fixture();
  getNote(document).tags = [];
  getNote(document)['x-other'] = 1;
  assert.throws(() => readContract(JSON.stringify(document)), /2 mistake.*x-other.*exactly one tag/s);
});

test('tells where the YAML is malformed', async () => {
  assert.throws(() => readContract('openapi: [3.0.3\npaths: {}'), /line 2/);
});
