import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { before, t, test } from 'tap';
import ts from 'typescript';
import { readContract } from '../../codegen/contract.ts';
import { generate, HEADING } from '../../codegen/generate.ts';
import { fixture, load } from './fixture.ts';

/** Each case is one file; a line that ends in `// error` must not compile, every other line must. */
const cases: Record<string, string> = {
  'an implementation that answers as declared': `
    import type { NotesOperations, OrderFormsOperations } from './contract/operations.ts';
    export const operations: { notes: NotesOperations<unknown>; orderForms: OrderFormsOperations<unknown> } = {
      notes: {
        async getNote({ params, query, headers }) {
          const speed: number | undefined = query.speed;
          if (headers['x-expiry'] === 1 || query.kind === 'long' || speed === 1) {
            return { status: 400, body: { error: { code: 'INVALID_SPEED', message: '', details: null } } };
          }
          const body = { id: params.noteId, balance: 1n, endedAt: null, state: null, details: { a: [1] } };
          return { status: 200, headers: { 'x-balance': 1n }, body };
        },
        async createNote({ body }) {
          if (body.type === 'text/plain') return { status: 200, type: 'audio/mpeg', body: new TextEncoder().encode(body.value) };
          const text = 'quoteToken' in body.value ? body.value.quoteToken : body.value.text;
          return { status: 413, body: { error: { code: 'TEXT_TOO_LONG', message: text, details: null } } };
        },
      },
      orderForms: {
        async orderForm({ body }) {
          if (body?.amount === 1) return { status: 400, type: 'text/html', body: '<p>No</p>' };
          return { status: 303, headers: { location: '/' } };
        },
      },
    };`,
  'a missing operation': `
    import type { NotesOperations } from './contract/operations.ts';
    export const notes: NotesOperations<unknown> = { // error
      async getNote() {
        return { status: 404, body: { error: { code: 'NOT_FOUND', message: '', details: null } } };
      },
    };`,
  'an undeclared status': `
    import type { GetNoteResult } from './contract/operations.ts';
    export const result: GetNoteResult = {
      status: 500, // error
      body: { error: { code: 'NOT_FOUND', message: '', details: null } },
    };`,
  'an error code declared for another status only': `
    import type { GetNoteResult } from './contract/operations.ts';
    export const result: GetNoteResult = { // error
      status: 404,
      body: { error: { code: 'INVALID_SPEED', message: '', details: null } },
    };`,
  'a missing required response header': `
    import type { GetNoteResult, Note } from './contract/all.ts';
    declare const body: Note;
    export const result: GetNoteResult = {
      status: 200,
      headers: { 'x-limit': 1 }, // error
      body,
    };`,
  'a header that the edge sets': `
    import type { GetNoteResult, Note } from './contract/all.ts';
    declare const body: Note;
    export const result: GetNoteResult = {
      status: 200,
      headers: { 'x-balance': 1n, 'x-trace-id': 'a' }, // error
      body,
    };`,
  'a missing required body member': `
    import type { GetNoteResult } from './contract/operations.ts';
    export const result: GetNoteResult = {
      status: 200,
      headers: { 'x-balance': 1n },
      body: { id: 'a', endedAt: null, state: null, details: null }, // error
    };`,
  'a bigint in a free-form object': `
    import type { GetNoteResult } from './contract/operations.ts';
    export const result: GetNoteResult = {
      status: 404,
      body: { error: { code: 'NOT_FOUND', message: '', details: { balance: 1n } } }, // error
    };`,
  'an undeclared media type': `
    import type { CreateNoteResult } from './contract/operations.ts';
    export const result: CreateNoteResult = {
      status: 200,
      type: 'audio/ogg', // error
      body: new Uint8Array(),
    };`,
  'an undeclared request member': `
    import type { GetNoteRequest } from './contract/operations.ts';
    export const read = (request: GetNoteRequest) => request.query.pitch; // error`,
};
const fileOf = (name: string) => join(resolve('test/codegen/virtual/src'), `${name.replaceAll(' ', '-')}.ts`);
let errorLines: Map<string, Set<number>>;

before(async () => {
  const base = resolve('test/codegen/virtual/src');
  const files = new Map<string, string>([
    [join(base, 'contract/all.ts'), "export type * from './operations.ts';\nexport type * from './types.ts';\n"],
  ]);
  for (const [name, text] of await generate(JSON.stringify(fixture()))) files.set(join(base, 'contract', name), text);
  for (const [name, text] of Object.entries(cases)) files.set(fileOf(name), text);

  const { config } = ts.readConfigFile('tsconfig.json', ts.sys.readFile);
  const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, '.');
  const host = ts.createCompilerHost(options);
  const { readFile, fileExists } = host;
  host.readFile = (path) => files.get(path) ?? readFile(path);
  host.fileExists = (path) => files.has(path) || fileExists(path);
  host.directoryExists = (path) => path.startsWith(base) || ts.sys.directoryExists(path);
  host.getSourceFile = (path, languageVersion) => {
    const text = host.readFile(path);
    return text === undefined ? undefined : ts.createSourceFile(path, text, languageVersion);
  };
  const roots = [...files.keys()].filter((path) => path.endsWith('.ts') && !path.endsWith('.d.ts'));
  const program = ts.createProgram(roots, options, host);
  errorLines = new Map(roots.map((path) => [path, new Set<number>()]));
  for (const { file, start, messageText } of ts.getPreEmitDiagnostics(program)) {
    const lines = file && errorLines.get(file.fileName);
    assert.ok(file && lines, `unexpected: ${ts.flattenDiagnosticMessageText(messageText, '\n')}`);
    lines.add(file.getLineAndCharacterOfPosition(start ?? 0).line);
  }
});

test('the same contract generates the same text, under the heading', async (t) => {
  const yaml = JSON.stringify(fixture());
  const [first, second] = [await generate(yaml), await generate(yaml)];
  t.strictSame([...first.keys()].sort(), [...second.keys()].sort());
  for (const [name, text] of first) {
    t.equal(second.get(name), text, name);
    if (name === 'openapi.json') t.strictSame(JSON.parse(text), fixture());
    else t.ok(text.startsWith(HEADING), name);
  }
});

test('types: int64 is a bigint, binary is bytes, free-form objects are JSON', async (t) => {
  const types = (await generate(JSON.stringify(fixture()))).get('types.ts') ?? '';
  for (const line of [
    'balance: bigint;',
    'owed?: bigint | null;',
    '"audio/mpeg": Uint8Array;',
    'details: JsonObject | null;',
    'endedAt: string | null;',
    'speed?: number;',
  ]) {
    t.ok(types.includes(line), line);
  }
});

test('a generated route holds what the edge needs', async () => {
  const [{ routes }, validators, serializers] = await load(
    t,
    fixture(),
    'routes.ts',
    'validators.js',
    'serializers.js',
  );
  assert.deepEqual(routes[0], {
    operationId: 'getNote',
    method: 'GET',
    path: '/notes/:noteId',
    listed: 1,
    noHead: true,
    rateLimits: { edge: 'unless-verified', credential: 'x-key', window: { by: 'ip', when: ['failed-credential'] } },
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
  assert.equal(routes[2].bodyRequired, false);
  assert.deepEqual(routes[2].responses[303], { produces: [] });
});

/** Lines of generated code that a reader of a change may have to look past. */
const MOST_LINES = 11_295;

const git = (...args: string[]) => execFileSync('git', args).toString().split('\0').filter(Boolean);

/** The files that .gitattributes marks as generated; what npm writes is no code. */
function generatedFiles(): string[] {
  const answers = git('check-attr', '-z', 'linguist-generated', '--', ...git('ls-files', '-z'));
  return answers.filter(
    (path, index) => index % 3 === 0 && answers[index + 2] === 'set' && !path.endsWith('package-lock.json'),
  );
}

test('generated files are labelled, marked in .gitattributes and limited in size', async (t) => {
  const marked = generatedFiles();
  let lines = 0;
  for (const path of marked) {
    const text = await readFile(path, 'utf8');
    // JSON has no comments.
    if (!path.endsWith('.json')) t.match(text.slice(0, 250), /generated by .*do not edit/is, path);
    lines += text.split('\n').length - 1;
  }
  t.ok(lines < MOST_LINES, `${lines} generated lines`);
  for (const path of ['src/contract/routes.ts', 'db/tables.ts', 'src/sandbox/chain/contracts/generated.ts']) {
    t.ok(marked.includes(path), `${path} is not marked`);
  }
});

test('serializers are the same whichever Node.js generates them', async (t) => {
  const serializers = await readFile('src/contract/serializers.js', 'utf8');
  t.notMatch(serializers, /return asPlainStringArray/, 'a cutoff of the version that generated them');
});

test('the generated files compile under the options of the project', async (t) => {
  for (const [path, lines] of errorLines) if (path.includes('/src/contract/')) t.strictSame([...lines], [], path);
});

for (const [name, text] of Object.entries(cases)) {
  const expected = text.split('\n').flatMap((line, index) => (line.endsWith('// error') ? [index] : []));
  test(`${name} ${expected.length === 0 ? 'compiles' : 'is a compile error'}`, async (t) => {
    t.strictSame([...(errorLines.get(fileOf(name)) ?? [])], expected);
  });
}

type Document = ReturnType<typeof fixture>;
const getNote = (document: Document) => document.paths['/notes/{noteId}'].get;

const mistakes: [string, (document: Document) => void, RegExp][] = [
  ['another OpenAPI version', (d) => (d.openapi = '3.1.0'), /openapi must be 3\.0\.3/],
  ['no operationId', (d) => delete getNote(d).operationId, /GET \/notes\/\{noteId\}: operationId/],
  [
    'a duplicate operationId',
    (d) => (d.paths['/notes'].post.operationId = 'getNote'),
    /operationId getNote is declared twice/,
  ],
  ['no rate limits', (d) => delete getNote(d)['x-rate-limits'], /GET \/notes\/\{noteId\}: x-rate-limits is missing/],
  [
    'an unknown edge limit',
    (d) => (d.paths['/notes'].post['x-rate-limits'] = { edge: 'never' }),
    /POST \/notes: x-rate-limits edge is never; known are always, unless-verified/,
  ],
  [
    'an unknown member of rate limits',
    (d) => (getNote(d)['x-rate-limits'].window.until = 'noon'),
    /x-rate-limits has an unknown member until/,
  ],
  [
    'unless-verified without a credential',
    (d) => delete getNote(d)['x-rate-limits'].credential,
    /x-rate-limits names the header of a credential exactly where edge is unless-verified/,
  ],
  [
    'a credential without unless-verified',
    (d) => (getNote(d)['x-rate-limits'].edge = 'always'),
    /x-rate-limits names the header of a credential exactly where edge is unless-verified/,
  ],
  [
    'a credential that is not a declared header',
    (d) => (getNote(d)['x-rate-limits'].credential = 'text'),
    /x-rate-limits credential text is no header that the operation declares/,
  ],
  [
    'a window by an unknown key',
    (d) => (getNote(d)['x-rate-limits'].window.by = 'moon'),
    /x-rate-limits window\.by is moon; known are account/,
  ],
  [
    'a window that never takes a slot',
    (d) => (getNote(d)['x-rate-limits'].window.when = []),
    /x-rate-limits window\.when must list/,
  ],
  [
    'a window that takes a slot for an unknown reason',
    (d) => (getNote(d)['x-rate-limits'].window.when = ['rain']),
    /x-rate-limits window\.when is rain; known are request/,
  ],
  ['no tag', (d) => delete getNote(d).tags, /GET \/notes\/\{noteId\}: exactly one tag/],
  ['an undeclared tag', (d) => (getNote(d).tags = ['ghosts']), /tag ghosts is not declared/],
  ['a duplicate x-listed position', (d) => (d.paths['/notes'].post['x-listed'] = 1), /x-listed 1 is declared twice/],
  ['a broken $ref', (d) => (getNote(d).responses[404].$ref = '#/components/responses/Gone'), /Gone names nothing/],
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
    'a parameter that is not a scalar',
    (d) => getNote(d).parameters.push({ name: 'ids', in: 'query', schema: { type: 'array' } }),
    /parameter ids: schema must have one of the types/,
  ],
  ['an undeclared path parameter', (d) => delete d.paths['/notes/{noteId}'].parameters, /path parameters declared/],
  ['a default response', (d) => (getNote(d).responses.default = { description: '' }), /a status must be a number/],
  [
    'an error with arbitrary codes',
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
    'an extension in the wrong place',
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

test('reports all mistakes at once', async (t) => {
  const document = fixture();
  getNote(document).tags = [];
  getNote(document)['x-other'] = 1;
  t.throws(() => readContract(JSON.stringify(document)), /Mistakes in the contract: 2.*x-other.*exactly one tag/s);
});

test('reports where the YAML is malformed', async (t) => {
  t.throws(() => readContract('openapi: [3.0.3\npaths: {}'), /line 2/);
});
