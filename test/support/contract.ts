import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import type { DeclaredOperation, DeclaredResponse, DeclaredResponses } from '../../codegen/response-validators.ts';
import { projectFile } from './project.ts';

const PROJECT = projectFile('');
const CACHE = new URL('node_modules/.cache/speechgate/', PROJECT);

/**
 * The validators of every declared response, compiled from openapi.yaml. That takes over a second, so that the module is
 * kept until the contract or its compiler changes, and each test file only loads it.
 */
async function declaredResponses(): Promise<DeclaredResponses> {
  const contract = await readFile(new URL('openapi.yaml', PROJECT), 'utf8');
  const module = new URL(`responses-${await keyOf(contract)}.js`, CACHE);
  if (!existsSync(module)) {
    const { readContract } = await import('../../codegen/contract.ts');
    const { generateResponseValidators } = await import('../../codegen/response-validators.ts');
    await mkdir(CACHE, { recursive: true });
    // Another test file may be doing the same.
    const written = new URL(`${randomUUID()}.js`, CACHE);
    await writeFile(written, generateResponseValidators(readContract(contract)));
    await rename(written, module);
  }
  return import(module.href);
}

async function keyOf(contract: string): Promise<string> {
  const hash = createHash('sha256').update(contract);
  const sources = (await readdir(new URL('codegen/', PROJECT))).sort().map((name) => `codegen/${name}`);
  for (const source of [...sources, 'package-lock.json']) hash.update(await readFile(new URL(source, PROJECT)));
  return hash.digest('hex').slice(0, 16);
}

const { operations, edgeHeaders, edgeResponses } = await declaredResponses();

export { operations };

export const operationIds: readonly string[] = operations.map(({ operationId }) => operationId);

/**
 * The headers of every response, written down here once more, so that neither the service nor the contract can change
 * one unseen (specification, "Authentication" 7).
 */
export const EDGE_HEADERS: Readonly<Record<string, string>> = {
  'strict-transport-security': 'max-age=31536000; includeSubDomains',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'cross-origin',
  'access-control-allow-origin': '*',
  'access-control-expose-headers':
    'x-trace-id, x-credit-account, x-credit-balance, x-credit-charged, payment-required, payment-response, www-authenticate, ' +
    'x-payment-identifier, x-idempotent-replay, x-x402-balance, x-x402-charged, retry-after, x-ratelimit-limit, ' +
    'x-ratelimit-policy, x-ratelimit-remaining, x-ratelimit-reset, x-ratelimit-scope, content-disposition, ' +
    'content-range, accept-ranges, cache-control, etag, location, allow, date',
};

export const API_POLICY = "default-src 'none'; frame-ancestors 'none'";
/** Pages have one inline stylesheet, and forms that go to this origin or to the checkout; that of `/` has a script. */
const PAGE_POLICY =
  /^default-src 'none'; style-src 'sha256-[\w+/]{43}='; (script-src 'sha256-[\w+/]{43}='; connect-src 'self'; media-src blob:; img-src data:; )?form-action 'self'( https?:\/\/[\w.:-]+)?; base-uri 'none'; frame-ancestors 'none'$/;

/** What HTTP itself adds; content-length and content-type tell of the body, the others of the connection. */
const HTTP_HEADERS = ['connection', 'content-length', 'content-type', 'date', 'keep-alive', 'transfer-encoding'];

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Buffer;
}

/**
 * Holds an answer against the contract: its status is declared for the operation, or at the edge where there is none, its
 * headers and its body are as declared, the headers of every response are there (R10), and no other is.
 */
export function assertContract(method: string, path: string, answer: Answer): void {
  const { status, headers, bytes } = answer;
  const where = `${method} ${path.split('?')[0]} answered ${status}`;
  const type = headers.get('content-type')?.split(';')[0];
  for (const [name, value] of Object.entries(EDGE_HEADERS)) assert.equal(headers.get(name), value, `${where}: ${name}`);
  const policy = headers.get('content-security-policy') ?? '';
  if (type === 'text/html') assert.match(policy, PAGE_POLICY, `${where}: its policy`);
  else assert.equal(policy, API_POLICY, `${where}: its policy`);
  assert.match(headers.get('x-trace-id') ?? '', /^[0-9a-f-]{36}$/, `${where} without x-trace-id`);

  const response = declaredResponse(method, path, status);
  assert.ok(response, `${where}, which the contract does not declare`);
  assert.deepEqual(
    undeclaredHeaders(response, headers),
    [],
    `${where} with headers that the contract does not declare`,
  );
  for (const declared of [edgeHeaders, response]) {
    const received = Object.fromEntries(headers);
    assert.ok(declared.headers(received), `${where} with headers ${JSON.stringify(declared.headers.errors)}`);
  }
  if (method === 'HEAD') return;
  if (type === undefined) {
    assert.equal(bytes.length, 0, `${where} with a body without a type`);
    return;
  }
  const validator = response.content[type];
  assert.ok(validator !== undefined, `${where} with ${type}, which the contract does not declare`);
  if (validator && type === 'application/json') {
    const body = JSON.parse(bytes.toString());
    assert.ok(validator(body), `${where} with ${bytes.toString()}: ${JSON.stringify(validator.errors)}`);
  }
}

function declaredResponse(method: string, path: string, status: number): DeclaredResponse | undefined {
  return (operationAt(method, path)?.responses ?? edgeResponses)[status];
}

/** The operation that a request reaches, if it reaches any. */
export function operationAt(method: string, path: string): DeclaredOperation | undefined {
  const pathname = path.split('?')[0] ?? '';
  return operations.find(
    (candidate) =>
      (candidate.method === method || (method === 'HEAD' && candidate.method === 'GET' && !candidate.noHead)) &&
      new RegExp(`^${candidate.path.replaceAll('.', '\\.').replaceAll(/\{\w+\}/g, '[^/]+')}$`).test(pathname),
  );
}

function undeclaredHeaders(response: DeclaredResponse, headers: Headers): string[] {
  const known = new Set([...response.headerNames, ...edgeHeaders.headerNames, ...HTTP_HEADERS]);
  return [...headers.keys()].filter((name) => !known.has(name));
}
