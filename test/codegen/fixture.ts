import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Test } from 'tap';
import ts from 'typescript';
import { generate } from '../../codegen/generate.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

// biome-ignore lint/suspicious/noExplicitAny: tests change any part of the document
type Document = any;

function errorSchema(...codes: string[]) {
  return {
    allOf: [
      { $ref: '#/components/schemas/StructuredError' },
      { properties: { error: { properties: { code: { type: 'string', enum: codes } } } } },
    ],
  };
}

function json(schema: object, description = 'Described.') {
  return { description, content: { 'application/json': { schema } } };
}

/** A small contract that uses every feature of the compiler. */
export function fixture(): Document {
  return {
    openapi: '3.0.3',
    info: { title: 'Fixture', version: '1' },
    tags: [{ name: 'notes', description: 'Notes.' }],
    'x-edge-headers': {
      headers: { 'X-Frame-Options': { required: true, schema: { type: 'string', enum: ['DENY'] } } },
    },
    'x-edge-responses': { 204: { description: 'Preflight.' }, 404: { $ref: '#/components/responses/NotFound' } },
    paths: {
      '/notes/{noteId}': {
        parameters: [{ name: 'noteId', in: 'path', required: true, schema: { type: 'string', minLength: 1 } }],
        get: {
          operationId: 'getNote',
          tags: ['notes'],
          summary: 'One note',
          'x-listed': 1,
          'x-no-head': true,
          'x-rate-limits': {
            edge: 'unless-verified',
            credential: 'x-key',
            window: { by: 'ip', when: ['failed-credential'] },
          },
          parameters: [
            { name: 'text', in: 'query', required: true, schema: { $ref: '#/components/schemas/SpokenText' } },
            {
              name: 'speed',
              in: 'query',
              schema: { type: 'number', minimum: 0.5, maximum: 2, default: 1, 'x-error-code': 'INVALID_SPEED' },
            },
            { name: 'count', in: 'query', schema: { type: 'integer', minimum: 0, exclusiveMinimum: true } },
            { name: 'flag', in: 'query', schema: { type: 'boolean' } },
            { name: 'kind', in: 'query', schema: { type: 'string', enum: ['long', 'short'] } },
            { name: 'X-Key', in: 'header', schema: { type: 'string', maxLength: 8 } },
            { name: 'x-expiry', in: 'header', schema: { type: 'integer' } },
          ],
          responses: {
            200: {
              description: 'The note.',
              headers: {
                'x-trace-id': { required: true, 'x-set-by': 'edge', schema: { type: 'string' } },
                'X-Balance': { required: true, schema: { type: 'integer', format: 'int64' } },
                'x-limit': { schema: { type: 'integer' } },
              },
              content: { 'application/json': { schema: { $ref: '#/components/schemas/Note' } } },
            },
            400: json(errorSchema('INVALID_REQUEST', 'INVALID_SPEED')),
            404: { $ref: '#/components/responses/NotFound' },
          },
        },
      },
      '/notes': {
        post: {
          operationId: 'createNote',
          'x-rate-limits': { edge: 'always' },
          tags: ['notes'],
          summary: 'Speak a note',
          requestBody: {
            required: true,
            'x-body-limit': 1024,
            content: {
              'application/json': {
                schema: { anyOf: [{ $ref: '#/components/schemas/Plain' }, { $ref: '#/components/schemas/Quoted' }] },
              },
              'text/plain': { schema: { type: 'string', minLength: 1, maxLength: 10, 'x-text': { cap: 'model' } } },
            },
          },
          responses: {
            200: {
              description: 'Audio.',
              content: {
                'audio/mpeg': { schema: { type: 'string', format: 'binary' } },
                'audio/wav': { schema: { type: 'string', format: 'binary' } },
              },
            },
            400: json(errorSchema('INVALID_REQUEST')),
            413: json(errorSchema('TEXT_TOO_LONG', 'REQUEST_TOO_LARGE')),
          },
        },
      },
    },
    components: {
      responses: { NotFound: json(errorSchema('NOT_FOUND')) },
      schemas: {
        SpokenText: {
          type: 'string',
          minLength: 1,
          maxLength: 5,
          'x-text': {},
          'x-error-code': { maxLength: 'INVALID_REQUEST' },
          'x-error-hint': 'Use POST.',
        },
        Plain: {
          type: 'object',
          required: ['text'],
          properties: {
            text: {
              type: 'string',
              minLength: 1,
              maxLength: 10,
              'x-text': {},
              'x-error-code': { maxLength: 'TEXT_TOO_LONG' },
            },
            speed: { type: 'number', minimum: 0.5, maximum: 2 },
          },
        },
        Quoted: {
          type: 'object',
          required: ['quoteToken'],
          properties: {
            quoteToken: { type: 'string', minLength: 1, maxLength: 20 },
            speed: { type: 'number', maximum: 2 },
          },
        },
        Base: {
          type: 'object',
          required: ['id', 'balance'],
          properties: { id: { type: 'string' }, balance: { type: 'integer', format: 'int64' } },
        },
        Note: {
          allOf: [
            { $ref: '#/components/schemas/Base' },
            {
              type: 'object',
              required: ['endedAt', 'state', 'details'],
              properties: {
                endedAt: { type: 'string', format: 'date-time', nullable: true },
                state: { type: 'string', enum: ['open', 'closed'], nullable: true },
                owed: { type: 'integer', format: 'int64', nullable: true },
                details: { type: 'object', nullable: true, additionalProperties: true },
                result: { nullable: true, allOf: [{ $ref: '#/components/schemas/Base' }] },
                tags: { type: 'array', items: { type: 'string' } },
                rate: { type: 'number' },
              },
            },
          ],
        },
        StructuredError: {
          type: 'object',
          required: ['error'],
          properties: {
            error: {
              type: 'object',
              required: ['code', 'message', 'details'],
              properties: {
                code: { type: 'string' },
                message: { type: 'string' },
                details: { type: 'object', nullable: true, additionalProperties: true },
              },
            },
          },
        },
      },
    },
  };
}

type Cleanup = Pick<Test, 'teardown'>;

/** A directory that is removed after the test, in which the project's packages can be imported. */
async function workspace(t: Cleanup): Promise<string> {
  const directory = await temporaryFolder(t);
  await writeFile(join(directory, 'package.json'), '{"type":"module"}');
  await symlink(resolve('node_modules'), join(directory, 'node_modules'));
  return directory;
}

/** Generates from a document, and imports the files named. */
export async function load(t: Cleanup, document: Document, ...names: string[]): Promise<Document[]> {
  const directory = join(await workspace(t), 'contract');
  await mkdir(directory);
  for (const [name, text] of await generate(JSON.stringify(document))) {
    await writeFile(join(directory, compiledName(name)), name.endsWith('.ts') ? compile(text) : text);
  }
  return Promise.all(names.map((name) => import(pathToFileURL(join(directory, compiledName(name))).href)));
}

const compiledName = (name: string) => name.replace(/ts$/, 'js');

const compile = (text: string) =>
  ts.transpileModule(text, {
    compilerOptions: {
      module: ts.ModuleKind.ESNext,
      target: ts.ScriptTarget.ES2023,
      rewriteRelativeImportExtensions: true,
    },
  }).outputText;
