import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import type { DeclaredOperation } from '../../codegen/response-validators.ts';
import type { Answer } from '../../test/support/contract.ts';
import { projectFile } from '../../test/support/project.ts';
import type { Target } from './conversation.ts';

// The package declares no types.
const Enforcer = createRequire(import.meta.url)('openapi-enforcer');

const CONTRACT = fileURLToPath(projectFile('openapi.yaml'));
/** OpenAPI has no place for the edge's own responses, so the oracle finds them at this path. */
export const EDGE = { method: 'GET', path: '/of-the-edge' } as const;

const document = parse(readFileSync(CONTRACT, 'utf8'));
document.paths[EDGE.path] = { get: { responses: document['x-edge-responses'] } };
const openapi = await Enforcer(document, { hideWarnings: true });

/**
 * Checks a response with openapi-enforcer, which shares no code with the service or the tests' own validator.
 * @returns the fault in status, headers or body, or undefined
 */
export function faultOfAnswer(
  { method, path }: Pick<DeclaredOperation, 'method' | 'path'> | typeof EDGE,
  { status, headers, bytes }: Answer,
  isHead: boolean,
): string | undefined {
  const response = openapi.paths[path]?.[method.toLowerCase()]?.responses[status];
  if (!response) return `${status} is not declared`;
  for (const [name, header] of Object.entries<Header>(response.headers ?? {})) {
    const value = headers.get(name);
    const fault =
      value === null ? header.required && 'is missing' : faultOf(header.schema, scalar(header.schema, value));
    if (fault) return `header ${name}: ${fault}`;
  }
  const type = headers.get('content-type')?.split(';')[0];
  if (type === undefined || isHead) return undefined;
  const media = response.content?.[type];
  if (!media) return `${type} is not declared for ${status}`;
  if (media.schema.format === 'binary') return undefined;
  const body = type === 'application/json' ? JSON.parse(bytes.toString()) : bytes.toString();
  return faultOf(media.schema, body);
}

interface OracleSchema {
  readonly type?: string;
  deserialize(value: unknown): readonly [value: unknown, fault?: unknown];
  validate(value: unknown): unknown;
}
interface Header {
  readonly required: boolean;
  readonly schema: OracleSchema;
}

/** Parses a header by its type. Returns the text if it does not parse. */
function scalar({ type }: OracleSchema, text: string): unknown {
  if ((type === 'integer' || type === 'number') && /^-?\d+(\.\d+)?$/.test(text)) return Number(text);
  return type === 'boolean' && /^(true|false)$/.test(text) ? text === 'true' : text;
}

function faultOf(schema: OracleSchema, given: unknown): string | undefined {
  const [value, unreadable] = schema.deserialize(given);
  const fault = unreadable ?? schema.validate(value);
  return fault ? String(fault) : undefined;
}

/**
 * Checks a request whose head and body are latin1. Skips two of the oracle's rules: it forbids a body with GET, and
 * empty parameters, which the service treats as absent. It does not know HEAD.
 */
export function faultOfRequest({ method, path }: Target, bytes: string): string | undefined {
  const [head = '', body = ''] = bytes.split(/\r\n\r\n(.*)/s, 2);
  const headers = Object.fromEntries(
    head
      .split('\r\n')
      .slice(1)
      .map((field) => field.split(/: ?(.*)/s, 2)),
  );
  const text = Buffer.from(body, 'latin1').toString();
  const isJson = /^application\/json/.test(headers['content-type'] ?? '');
  try {
    const isForm = /^application\/x-www-form-urlencoded/.test(headers['content-type'] ?? '');
    const read = isJson ? JSON.parse(text) : isForm ? Object.fromEntries(new URLSearchParams(text)) : text;
    const [, fault] = openapi.request(
      {
        method: method === 'HEAD' ? 'GET' : method,
        path: path.replaceAll(/(?<=[?&])[^=&]+=(?=&|$)/g, ''),
        headers,
        ...(body !== '' && method === 'POST' && { body: typeof read === 'object' ? read : text }),
      },
      { allowOtherQueryParameters: true },
    );
    return fault && String(fault);
  } catch (error) {
    return String(error);
  }
}
