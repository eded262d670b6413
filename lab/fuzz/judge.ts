import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { parse } from 'yaml';
import { type Answer, assertContract, operationAt } from '../../test/support/contract.ts';
import { projectFile } from '../../test/support/project.ts';
import type { Heard, Sent } from '../soak/callers/line.ts';
import type { Conversation, Target } from './conversation.ts';

// The package declares no types.
const Enforcer = createRequire(import.meta.url)('openapi-enforcer');

/** OpenAPI has no place for the edge's own responses, so the oracle finds them at this path. */
const EDGE = { method: 'GET', path: '/of-the-edge' };
const document = parse(readFileSync(projectFile('openapi.yaml'), 'utf8'));
document.paths[EDGE.path] = { get: { responses: document['x-edge-responses'] } };
const openapi = await Enforcer(document, { hideWarnings: true });

/** Refusals by the edge: before routing, or because the bytes are not HTTP. */
const REFUSED_AT_EDGE = new Set([400, 404, 405, 408, 413, 417, 429, 431]);
const NOWHERE: Target = { method: 'GET', path: '/nowhere' };

/**
 * Checks responses with the tests' own validator and with openapi-enforcer. @returns operations, or `edge`, and statuses
 * @throws when one is undeclared or a 5xx, or when there are more responses than requests
 */
export function judge({ targets, isHttp, ending }: Conversation, answers: readonly Answer[]): string[] {
  if (isHttp && ending === 'answered')
    assert.equal(answers.length, targets.length, `${answers.length} answers to ${targets.length} requests`);
  return answers.map((answer, at) => {
    const target = targets[at];
    if (target) return isHttp ? judgeAnswer(target, answer) : judgeEither(target, answer);
    // Bytes beyond the declared body length count as one more, invalid request. Its response is the last.
    assert.deepEqual([at, answer.status], [targets.length, 400], 'an answer that nobody asked for');
    assert.equal(answer.headers.get('connection'), 'close');
    return judgeAnswer(NOWHERE, answer);
  });
}

/** A response to a caller of the soak. */
export function judgeHeard({ method, path }: Sent, { status, headers, body, isWhole }: Heard): string {
  assert.ok(isWhole, `${method} ${path} was answered ${status}, and not to the end`);
  const fields = Object.entries(headers).map(([name, value]): [string, string] => [name, String(value)]);
  return judgeAnswer({ method, path }, { status, headers: new Headers(fields), bytes: body });
}

function judgeAnswer({ method, path }: Target, answer: Answer): string {
  const { status } = answer;
  const operation = operationAt(method, path);
  // The processor does not know an invented checkout session.
  const isMadeUp = operation?.operationId === 'completeTopUp' && status === 502;
  const shown = `${method} ${path.slice(0, 200)} answered ${status}: ${answer.bytes.toString().slice(0, 500)}`;
  assert.ok(status < 500 || isMadeUp, shown);
  assertContract(method, path, answer);
  const fault = faultOfAnswer(operation ?? EDGE, answer, method === 'HEAD');
  assert.equal(fault, undefined, `openapi-enforcer: ${fault}\n${shown}`);
  return `${operation?.operationId ?? 'edge'} ${status}`;
}

function judgeEither(target: Target, answer: Answer): string {
  try {
    return judgeAnswer(target, answer);
  } catch (error) {
    if (!REFUSED_AT_EDGE.has(answer.status)) throw error;
    return judgeAnswer({ ...NOWHERE, method: target.method === 'HEAD' ? 'HEAD' : 'GET' }, answer);
  }
}

interface OracleSchema {
  readonly type?: string;
  readonly format?: string;
  deserialize(value: unknown): readonly [value: unknown, fault?: unknown];
  validate(value: unknown): unknown;
}

/** openapi-enforcer shares no code with the service or the tests' own validator. */
function faultOfAnswer({ method, path }: Target, answer: Answer, isHead: boolean): string | undefined {
  const { status, headers, bytes } = answer;
  const response = openapi.paths[path]?.[method.toLowerCase()]?.responses[status];
  if (!response) return `${status} is not declared`;
  const declared = Object.entries<{ required: boolean; schema: OracleSchema }>(response.headers ?? {});
  for (const [name, { required, schema }] of declared) {
    const value = headers.get(name);
    const fault = value === null ? required && 'is missing' : faultOf(schema, scalar(schema, value));
    if (fault) return `header ${name}: ${fault}`;
  }
  const type = headers.get('content-type')?.split(';')[0];
  if (type === undefined || isHead) return undefined;
  const schema: OracleSchema | undefined = response.content?.[type]?.schema;
  if (!schema) return `${type} is not declared for ${status}`;
  if (schema.format === 'binary') return undefined;
  const body = bytes.toString();
  return faultOf(schema, type === 'application/json' ? JSON.parse(body) : body);
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
