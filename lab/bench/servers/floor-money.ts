import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { FastifyContextConfig, FastifyInstance } from 'fastify';
import pg from 'pg';
import { Pool } from 'undici';
import { v7 as uuidv7 } from 'uuid';
import { DEFAULT_ASSET, DEFAULT_NETWORK } from '../../../src/config/network.ts';
import { GroupedStatement } from '../../../src/db/hot-statements.ts';
import {
  PrepaidVerifier,
  parsePrepaidHeaders,
  signedRequestOf,
} from '../../../src/payments/prepaid/prepaid-credential.ts';
import { CHAIN_ID, PAY_TO, PRICE_MICRO_USD } from '../world.ts';

// The floor of the paid flows: what it costs on Fastify, undici and pg to keep the money of a request durably, and
// nothing else. It has no look-up, lease, rate window, audio check, log, metric, price list, chain node or contract.
const { DATABASE_URL, UPSTREAM_ORIGIN, FACILITATOR_URL, FOLDER, PORT } = process.env;
const SCHEMA = `floor_${PORT}`;
const CONNECTIONS = 256;
const CAPTURE_WITHIN_MS = 5;

const upstream = new Pool(UPSTREAM_ORIGIN as string, { connections: CONNECTIONS });
const facilitator = new Pool(FACILITATOR_URL as string, { connections: CONNECTIONS });
const pool = (options = '') =>
  new pg.Pool({ connectionString: DATABASE_URL, max: 4, options: `-c search_path=${SCHEMA} ${options}` });
const durable = pool();
/** For what a later durable commit brings along. */
const lazy = pool('-c synchronous_commit=off');

await durable.query(`
  create schema ${SCHEMA};
  create table account (key text primary key, balance bigint not null check (balance >= 0));
  insert into account select coalesce(address, id::text), 1000000000000 from public.account where kind <> 'contra';
  create table hold (id uuid primary key, account text not null references account, amount bigint not null,
                           nonce text, state text not null, unique (account, nonce));
  create table payment (id uuid primary key, identifier text not null unique, payer text not null, nonce text not null,
                              hash bytea not null, state text not null, place bigint, transaction text, unique (payer, nonce))`);

/** A statement on the columns of its items, which returns the ids that it changed. */
function grouped<Item extends { readonly id: string }>(
  pool: pg.Pool,
  name: string,
  columns: readonly (keyof Item)[],
  text: string,
  groupWithinMs?: number,
) {
  return new GroupedStatement<Item, boolean>({
    run: async (items) => {
      const values = columns.map((column) => items.map((item) => item[column]));
      const { rows } = await pool.query({ name, text, values });
      const ids = new Set(rows.map(({ id }) => id));
      return items.map(({ id }) => ids.has(id));
    },
    keyOf: ({ id }) => id,
    ...(groupWithinMs !== undefined && { groupWithinMs }),
  });
}

interface Hold {
  readonly id: string;
  readonly account: string;
  readonly nonce: string | null;
}

const holds = grouped<Hold>(
  lazy,
  'hold',
  ['id', 'account', 'nonce'],
  `
      with asked as (
        select * from unnest($1::uuid[], $2::text[], $3::text[]) as asked (id, account, nonce)
      ), payer as materialized (
        select key, balance from account where key = any($2::text[]) order by key for no key update
      ), ranked as (
        select asked.*, balance, row_number() over (partition by account order by id) * ${PRICE_MICRO_USD} as total
        from asked join payer on key = account
      ), hold as (
        insert into hold select id, account, ${PRICE_MICRO_USD}, nonce, 'pending' from ranked where total <= balance
        on conflict do nothing returning id, account
      ), debit as (
        update account set balance = balance - due.count * ${PRICE_MICRO_USD}
        from (select account, count(*) from hold group by account) due where key = due.account
      )
      select id from hold`,
);

const captures = grouped<Hold>(
  durable,
  'capture',
  ['id'],
  `update hold set state = 'posted' where id = any($1::uuid[]) and state = 'pending' returning id`,
  CAPTURE_WITHIN_MS,
);

interface Payment {
  readonly id: string;
  readonly identifier: string;
  readonly payer: string;
  readonly nonce: string;
  readonly hash: Buffer;
  place?: number;
  transaction?: string;
}

const reservations = grouped<Payment>(
  lazy,
  'reserve',
  ['id', 'identifier', 'payer', 'nonce', 'hash'],
  `
      insert into payment select *, 'reserved' from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bytea[])
      on conflict do nothing returning id`,
);

const settlings = grouped<Payment>(
  durable,
  'settling',
  ['id', 'place'],
  `
      update payment set state = 'settling', place = asked.place
      from unnest($1::uuid[], $2::bigint[]) as asked (id, place)
      where payment.id = asked.id and state = 'reserved' returning payment.id`,
);

const settlements = grouped<Payment>(
  lazy,
  'settled',
  ['id', 'transaction'],
  `
      update payment set state = 'settled', transaction = asked.transaction
      from unnest($1::uuid[], $2::text[]) as asked (id, transaction)
      where payment.id = asked.id and state = 'settling' returning payment.id`,
);

const segment = await open(join(FOLDER as string, `${SCHEMA}-audio`), 'w');
let written = 0;
/** Audio of concurrent payments shares one write and one sync. Returns where each begins. */
const stored = new GroupedStatement<Buffer, number>({
  run: async (audio) => {
    const begin = written;
    const places = audio.map(({ length }) => {
      written += length;
      return written - length;
    });
    await segment.writev([...audio], begin);
    await segment.datasync();
    return places;
  },
  keyOf: (audio) => audio,
});

export async function synthesize(text: string) {
  const { statusCode, body } = await upstream.request({
    method: 'POST',
    path: '/v1/audio/speech',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'tts-1', voice: 'alloy', input: text, response_format: 'mp3' }),
  });
  if (statusCode !== 200) throw new Error(`the upstream answered ${statusCode}`);
  return body;
}

export const wholeAudio = async (text: string) => Buffer.from(await (await synthesize(text)).arrayBuffer());

async function ask(path: '/verify' | '/settle', body: string) {
  const answer = await facilitator.request({
    ...{ method: 'POST', path, body },
    headers: { 'content-type': 'application/json' },
  });
  return (await answer.body.json()) as Record<string, unknown>;
}

export interface FloorRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly bytes: Buffer;
  readonly text: string;
  /** Calls the listener when the last byte was handed over. */
  onSent(listener: () => void): void;
}

export interface FloorAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Readable | Buffer;
}

export async function sellByCard({ headers, text, onSent }: FloorRequest): Promise<FloorAnswer> {
  const hold = { id: uuidv7(), account: String(headers['x-credit-account']), nonce: null };
  if (!(await holds.execute(hold))) return { status: 402 };
  const body = await synthesize(text);
  onSent(() => void captures.execute(hold));
  return { status: 200, body };
}

const asset = {
  network: DEFAULT_NETWORK,
  chainId: CHAIN_ID,
  address: DEFAULT_ASSET,
  name: 'USD Coin',
  version: '2',
} as const;
const verifier = new PrepaidVerifier('speechgate', asset, [
  { address: PAY_TO, status: 'current', validFrom: undefined, validUntil: undefined },
]);
const offer = {
  ...{
    scheme: 'exact',
    network: DEFAULT_NETWORK,
    amount: String(PRICE_MICRO_USD),
    asset: DEFAULT_ASSET,
    payTo: PAY_TO,
  },
  ...{ maxTimeoutSeconds: 120, extra: { name: asset.name, version: asset.version } },
};
const resource = { url: 'http://127.0.0.1/x402/tts', description: 'Text to speech', mimeType: 'audio/mpeg' };
const extensions = { 'payment-identifier': { info: { required: true }, schema: {} } };
const challenge = Buffer.from(
  JSON.stringify({ x402Version: 2, error: 'Payment required', resource, accepts: [offer], extensions }),
).toString('base64');

export async function sellInUsdc(request: FloorRequest): Promise<FloorAnswer> {
  const { headers, text, onSent } = request;
  const header = headers['payment-signature'];
  if (typeof header === 'string') return sellDirectly(header, request);
  if (headers['x-x402-signature'] === undefined) return { status: 402, headers: { 'payment-required': challenge } };
  const credential = parsePrepaidHeaders(headers as Record<string, string>);
  if (!credential || !verifier.isSignedByAccount(credential, signedRequestOf(request))) return { status: 401 };
  const hold = { id: uuidv7(), account: credential.account, nonce: credential.nonce };
  if (!(await holds.execute(hold))) return { status: 402 };
  const body = await wholeAudio(text);
  onSent(() => void captures.execute(hold));
  return { status: 200, body };
}

async function sellDirectly(header: string, { bytes, text }: FloorRequest): Promise<FloorAnswer> {
  const paymentPayload = JSON.parse(Buffer.from(header, 'base64').toString());
  const { from, nonce } = paymentPayload.payload.authorization;
  const identifier = paymentPayload.extensions['payment-identifier'].info.id;
  const hash = createHash('sha256').update(bytes).update(header).digest();
  const payment: Payment = { id: uuidv7(), identifier, payer: from.toLowerCase(), nonce, hash };
  if (!(await reservations.execute(payment))) return { status: 409 };
  const asked = JSON.stringify({ x402Version: 2, paymentPayload, paymentRequirements: offer });
  if (!(await ask('/verify', asked)).isValid) return { status: 402 };
  const body = await wholeAudio(text);
  payment.place = await stored.execute(body);
  if (!(await settlings.execute(payment))) return { status: 409 };
  const settled = await ask('/settle', asked);
  payment.transaction = String(settled.transaction);
  if (!settled.success || !(await settlements.execute(payment))) return { status: 409 };
  return {
    status: 200,
    headers: { 'payment-response': Buffer.from(JSON.stringify(settled)).toString('base64') },
    body,
  };
}

const body = { type: 'object', required: ['text'], properties: { text: { type: 'string', minLength: 1 } } };

/** Adds the routes of the floor. */
export function addFloorRoutes(server: FastifyInstance, config: FastifyContextConfig = {}): void {
  server.decorateRequest('bytes');
  server.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, bytes, done) => {
    request.bytes = bytes as Buffer;
    done(null, JSON.parse(bytes.toString()));
  });
  for (const [path, sell] of [['/tts', sellByCard] as const, ['/x402/tts', sellInUsdc] as const]) {
    server.post<{ Body: { text: string } }>(path, { schema: { body }, config }, async (request, reply) => {
      const { method, url, headers } = request;
      const [bytes, text] = [request.bytes as Buffer, request.body.text.trim()];
      const onSent = (listener: () => void) => void reply.raw.once('finish', listener);
      const answer = await sell({ method, url, headers, bytes, text, onSent });
      reply.code(answer.status).headers(answer.headers ?? {});
      return answer.body ? reply.type('audio/mpeg').send(answer.body) : reply.send({});
    });
  }
}
