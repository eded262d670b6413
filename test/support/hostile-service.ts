import { createServer, type ServerResponse } from 'node:http';
import { gzipSync } from 'node:zlib';
import type { Test } from 'tap';
import { serve } from './listening.ts';

/** Draws the lies: the same for the same seed. */
export class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed;
  }

  /** From 0 up to, not including, the bound. */
  below(bound: number): number {
    // The constants of mulberry32.
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % bound;
  }

  of<T>(values: readonly T[]): T {
    return values[this.below(values.length)] as T;
  }
}

interface Told {
  status: number;
  readonly headers: Headers;
  body: Buffer;
}

const BOMB = gzipSync(Buffer.alloc(16_000_000, ' '));
const CHUNK = Buffer.alloc(65_536, 1);
const ODD = '\u001b[2J\u202eevil\u0000\n'.repeat(40);
const ELSEWHERE = 'http://169.254.169.254/latest';
const VALUES: readonly unknown[] = [
  ...[null, true, 0, -1, 1.5, 1e300, 2 ** 53, '', '-1', '1e9', 'NaN', ODD, ELSEWHERE, '__proto__', {}, [], [null]],
  ...[
    'x'.repeat(100_000),
    { payment: { state: 'not_charged' } },
    { payment: { state: 'charged', amountMicroUsd: -5 } },
  ],
];
const AMOUNT_HEADERS = ['x-credit-charged', 'x-credit-balance', 'x-x402-charged', 'x-x402-balance', 'content-length'];
const HEADERS = [
  ...AMOUNT_HEADERS,
  'content-type',
  'retry-after',
  'date',
  'x-trace-id',
  'payment-response',
  'location',
];
const HEADER_VALUES = [
  '',
  '0',
  '-1',
  '99999999999999999999',
  'audio/mpeg',
  'audio/wav',
  'application/json',
  ELSEWHERE,
  'x'.repeat(5000),
];
const STATUSES = [200, 201, 202, 204, 301, 307, 400, 401, 402, 404, 409, 410, 413, 429, 500, 502, 503, 599];
const DENIAL = { error: { code: 'X', message: ODD, details: { payment: { state: 'not_charged' } } } };

const json = (told: Told, value: unknown) => {
  told.body = Buffer.from(JSON.stringify(value));
  told.headers.set('content-type', 'application/json');
};

/** Replaces a value somewhere in JSON. */
function changeSomewhere(value: unknown, dice: Dice): unknown {
  if (typeof value !== 'object' || value === null || dice.below(4) === 0) return dice.of(VALUES);
  const names = Object.keys(value);
  if (names.length === 0) return dice.of(VALUES);
  const name = dice.of(names);
  const changed = changeSomewhere((value as Record<string, unknown>)[name], dice);
  return Array.isArray(value)
    ? value.map((each, index) => (String(index) === name ? changed : each))
    : { ...value, [name]: changed };
}

const parsed = (body: Buffer): unknown => {
  try {
    return JSON.parse(`${body}`);
  } catch {
    return {};
  }
};

/** What can be wrong with an answer. One that returns true has answered by itself. */
const LIES: readonly ((told: Told, dice: Dice, response: ServerResponse) => unknown)[] = [
  (told, dice) => {
    told.status = dice.of(STATUSES);
  },
  (told, dice) => told.headers.set(dice.of(HEADERS), dice.of(HEADER_VALUES)),
  (told, dice) => told.headers.delete(dice.of([...told.headers.keys()])),
  (told, dice) => json(told, changeSomewhere(parsed(told.body), dice)),
  (told, dice) => json(told, dice.of(VALUES)),
  (told, dice) => {
    const header = told.headers.get('payment-required');
    if (header === null) return;
    const challenge = changeSomewhere(parsed(Buffer.from(header, 'base64')), dice);
    told.headers.set(
      'payment-required',
      Buffer.from(JSON.stringify(challenge) ?? 'null')
        .toString('base64')
        .slice(0, 12_000),
    );
  },
  (told, dice) => {
    told.status = dice.of([400, 402, 409, 429, 502, 503]);
    json(told, DENIAL);
  },
  (told, dice) => {
    told.body = told.body.subarray(0, dice.below(told.body.length + 1));
  },
  (told) => {
    told.body = BOMB;
    told.headers.set('content-encoding', 'gzip');
  },
  (told, _dice, response) => {
    response.writeHead(told.status, { 'content-type': told.headers.get('content-type') ?? 'audio/mpeg' });
    const send = () => {
      while (!response.destroyed && response.write(CHUNK));
    };
    response.on('drain', send);
    send();
    return true;
  },
  (_told, _dice, response) => {
    response.writeHead(200, { 'content-type': 'audio/mpeg' }).write(CHUNK);
    return true;
  },
  () => true,
  (_told, _dice, response) => {
    response.destroy();
    return true;
  },
];

export type HostileService = Awaited<ReturnType<typeof startHostileService>>;

interface Signature {
  readonly nonce: string;
  readonly address: string;
  readonly microUsd: bigint;
}

/** The signature that pays for a request. */
function signatureOf(headers: Readonly<Record<string, string | undefined>>): Signature | undefined {
  const { 'payment-signature': payment, 'x-x402-account': address, 'x-x402-nonce': nonce } = headers;
  const most = headers['x-x402-max-amount'];
  if (address !== undefined && nonce !== undefined && most !== undefined) {
    return { nonce, address, microUsd: BigInt(most) };
  }
  if (payment === undefined) return undefined;
  const { authorization } = JSON.parse(`${Buffer.from(payment, 'base64')}`).payload;
  return { nonce: authorization.nonce, address: authorization.from, microUsd: BigInt(authorization.value) };
}

/** Stands before a service and lies in its answers: sizes, amounts, charges, links, names, headers, and when they end. */
export async function startHostileService(t: Test, dice: Dice) {
  let lies = 0;
  const signatures = new Map<string, Signature>();
  const server = createServer(async (request, response) => {
    response.on('error', () => {});
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const { host, connection, ...headers } = request.headers as Record<string, string>;
    const signature = signatureOf(headers);
    if (signature) signatures.set(signature.nonce, signature);
    const body = chunks.length > 0 ? { body: Buffer.concat(chunks) } : {};
    const asked = fetch(hostile.target + request.url, { method: request.method as string, headers, ...body });
    // At the end of the tests the service is closed before this server is.
    const answer = await asked.catch(() => undefined);
    if (!answer) return void response.destroy();
    const told: Told = {
      status: answer.status,
      headers: new Headers(answer.headers),
      body: Buffer.from(await answer.arrayBuffer()),
    };
    for (const name of ['transfer-encoding', 'connection', 'keep-alive', 'content-length']) told.headers.delete(name);
    if (hostile.isLying && dice.below(3) > 0) {
      lies += 1;
      if (dice.of(LIES)(told, dice, response) === true) return;
    }
    response.writeHead(told.status, Object.fromEntries(told.headers)).end(told.body);
  });
  server.on('clientError', (_error, socket) => socket.destroy());
  const url = await serve(t, server);
  const hostile = {
    url,
    /** Where what it asks is answered truly. */
    target: url,
    isLying: false,
    /** What the signatures of a wallet allow that it was given, in micro-USD. */
    signedBy: (address: string) =>
      [...signatures.values()].reduce((sum, each) => (each.address === address ? sum + each.microUsd : sum), 0n),
    get lies() {
      return lies;
    },
  };
  return hostile;
}
