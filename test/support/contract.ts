import assert from 'node:assert/strict';
import { edgeResponseValidators, responseValidators } from '../../src/contract/response-validators.js';
import { routes } from '../../src/contract/routes.ts';
import { EDGE_HEADERS } from '../../src/http/headers.ts';

/** Set by Node itself, or only where they are meaningful. */
const TRANSPORT_HEADERS = ['connection', 'content-length', 'content-type', 'date', 'keep-alive', 'transfer-encoding'];

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Buffer;
}

/**
 * Holds an answer against the contract: its status is declared for the operation, or at the edge where there is none, its
 * headers and its body are as declared, and the headers of every response are there (R10).
 */
export function assertContract(method: string, path: string, answer: Answer): void {
  const { status, headers, bytes } = answer;
  const where = `${method} ${path.split('?')[0]} answered ${status}`;
  for (const [name, value] of Object.entries(EDGE_HEADERS)) {
    if (name !== 'content-security-policy') assert.equal(headers.get(name), value, `${where} without ${name}`);
  }
  assert.match(headers.get('content-security-policy') ?? '', /default-src 'none'/, `${where}: its policy`);
  assert.match(headers.get('x-trace-id') ?? '', /^[0-9a-f-]{36}$/, `${where} without x-trace-id`);
  assert.equal(headers.get('set-cookie'), null, `${where} with a cookie`);

  const validators = declared(method, path, status);
  assert.ok(validators, `${where}, which the contract does not declare`);
  if (validators.headers) {
    const received = Object.fromEntries(headers);
    assert.ok(validators.headers(received), `${where} with headers ${JSON.stringify(validators.headers.errors)}`);
  }
  if (method === 'HEAD') return;
  const type = headers.get('content-type')?.split(';')[0];
  if (type === undefined) {
    assert.equal(bytes.length, 0, `${where} with a body without a type`);
    return;
  }
  const validator = validators.body[type];
  const binary = type.startsWith('audio/');
  assert.ok(validator || binary, `${where} with ${type}, which the contract does not declare`);
  if (validator && type === 'application/json') {
    const body = JSON.parse(bytes.toString());
    assert.ok(validator(body), `${where} with ${bytes.toString()}: ${JSON.stringify(validator.errors)}`);
  }
}

function declared(method: string, path: string, status: number) {
  const pathname = path.split('?')[0] ?? '';
  const route = routes.find(
    (candidate) =>
      (candidate.method === method || (method === 'HEAD' && candidate.method === 'GET' && !candidate.noHead)) &&
      new RegExp(`^${candidate.path.replaceAll('.', '\\.').replaceAll(/:\w+/g, '[^/]+')}$`).test(pathname),
  );
  return route ? responseValidators[route.operationId]?.[status] : edgeResponseValidators[status];
}

/** Headers that no operation declares and that the edge does not set either. */
export function undeclaredHeaders(headers: Headers, declaredNames: readonly string[]): string[] {
  const known = new Set([...TRANSPORT_HEADERS, ...Object.keys(EDGE_HEADERS), 'x-trace-id', ...declaredNames]);
  return [...headers.keys()].filter((name) => !known.has(name));
}
