import assert from 'node:assert/strict';
import { join, resolve } from 'node:path';
import { before, test } from 'tap';
import ts from 'typescript';
import { generate } from '../../codegen/generate.ts';
import { fixture } from './fixture.ts';

/** Each case is one file; a line that ends in `// error` must not compile, every other line must. */
const cases: Record<string, string> = {
  'an implementation that answers as declared': `
    import type { Operations } from './contract/operations.ts';
    export const operations: Operations<unknown> = {
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
  'a missing tag': `
    import type { NotesOperations, Operations } from './contract/operations.ts';
    declare const notes: NotesOperations<unknown>;
    export const operations: Operations<unknown> = { notes }; // error`,
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

let errorLines: Map<string, Set<number>>;
const fileOf = (name: string) => join(resolve('test/codegen/virtual/src'), `${name.replaceAll(' ', '-')}.ts`);

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

test('the generated files compile under the options of the project', async () => {
  for (const [path, lines] of errorLines) if (path.includes('/src/contract/')) assert.deepEqual([...lines], [], path);
});

for (const [name, text] of Object.entries(cases)) {
  const expected = text.split('\n').flatMap((line, index) => (line.endsWith('// error') ? [index] : []));
  test(`${name} ${expected.length === 0 ? 'compiles' : 'is a compile error'}`, async () => {
    assert.deepEqual([...(errorLines.get(fileOf(name)) ?? [])], expected);
  });
}
