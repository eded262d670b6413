import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { request as httpRequest, type IncomingMessage, type OutgoingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Test } from 'tap';
import { type App, createApp } from '../../src/app.ts';
import { type Config, describeFaults, readConfig } from '../../src/config/config.ts';
import { rotateKeys } from '../../src/config/signing-keys.ts';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { createLogger } from '../../src/observability/logger.ts';
import { creditTopUp } from '../../src/payments/top-up/credit-top-up.ts';
import { assertContract } from './contract.ts';
import { testDatabase } from './database.ts';
import { temporaryFolder } from './temporary-folder.ts';

export const BASE_URL = 'http://speechgate.test';

export interface Call {
  readonly method?: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Buffer;
  /** Sent as JSON. */
  readonly json?: unknown;
}

export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Buffer;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into whatever came back; its shape was held against the contract.
  readonly json: any;
}

export interface LogLine {
  readonly msg: string;
  readonly traceId?: string;
  readonly [field: string]: unknown;
}

export interface Gateway {
  readonly app: App;
  readonly config: Config;
  /** Where it listens; links in answers use BASE_URL. */
  readonly url: string;
  readonly db: Database;
  readonly databaseUrl: string;
  /** What it has logged, from the setting's LOG_LEVEL on: nothing unless a test sets that. */
  readonly log: readonly LogLine[];
  /** Sends a request, and holds the answer against the contract. */
  call(path: string, call?: Call): Promise<Reply>;
  /** A credit account that holds the cents. */
  fund(cents: number): Promise<string>;
  balance(accountId: string): Promise<bigint>;
}

export interface GatewayOptions {
  readonly databaseUrl?: string;
  readonly worker?: boolean;
  readonly adjust?: (config: Config) => Config;
  /** As in a sandbox. */
  readonly demoAccount?: () => string;
}

/**
 * A gateway in this process with a database of its own. `env` is what `npm start` would read; settings that are not
 * given are those of a gateway whose flows are on but whose outside parts can't be reached, and whose reconcilers run
 * only when they are told to (`app.reconcilers.turn()`). Jobs run with `worker` only. What no setting can change, such
 * as a limit of the specification, can be adjusted.
 */
export async function startGateway(
  t: Test,
  env: Record<string, string> = {},
  options: GatewayOptions = {},
): Promise<Gateway> {
  const databaseUrl = options.databaseUrl ?? (await testDatabase(t)).url;
  const dataDir = await temporaryFolder(t);
  const signingKeys = join(dataDir, 'keys.json');
  await writeFile(signingKeys, JSON.stringify(rotateKeys(undefined, new Date())));
  const result = readConfig({
    BASE_URL,
    DATABASE_URL: databaseUrl,
    DATA_DIR: dataDir,
    LOG_LEVEL: process.env.LOG_LEVEL ?? 'silent',
    STRIPE_SECRET_KEY: 'sk_test_gateway',
    STRIPE_API_BASE: 'http://127.0.0.1:1',
    CHECKOUT_ORIGIN: 'http://127.0.0.1:1',
    SPEECH_BASE_URL: 'http://127.0.0.1:1/v1',
    FEEDBACK_SECRET: 'the secret of the gateway under test',
    X402_PAY_TO: '0x00000000000000000000000000000000000000a1',
    X402_FACILITATOR_URL: 'http://127.0.0.1:1',
    X402_RPC_URL: 'http://127.0.0.1:1',
    QUOTE_SECRET: 'a-quote-secret-of-the-tests-of-32-bytes-or-more',
    SIGNING_KEYS_FILE: signingKeys,
    RATE_LIMIT_MAX: '10000',
    TOP_UP_RATE_LIMIT_MAX: '10000',
    EDGE_RATE_LIMIT_MAX: '1000000',
    RECONCILE_INTERVAL_MS: '86400000',
    ...env,
  });
  if (result.outcome === 'faulty') throw new Error(describeFaults(result.faults));
  const config = options.adjust?.(result.config) ?? result.config;
  const log: LogLine[] = [];
  const logger = createLogger(config.logLevel, {
    write: (line) => {
      log.push(JSON.parse(line));
      if (process.env.LOG_LEVEL) process.stdout.write(line);
    },
  });
  const created = await createApp(config, logger, options);
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= created.close();
    return closing;
  };
  const app: App = { ...created, close };
  await app.server.listen({ host: '127.0.0.1', port: env.PORT ? config.port : 0 });
  const { port } = app.server.server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  if (options.worker) {
    app.worker?.start();
    app.mailer?.start();
  }
  const db = openDatabase(databaseUrl, { maxConnections: 4 });
  t.teardown(async () => {
    await app.close();
    await db.destroy();
  });
  return {
    app,
    config,
    url,
    db,
    databaseUrl,
    log,
    call: (path, call) => send(url, path, call),
    fund: (cents) => fund(db, cents),
    balance: async (id) => {
      const row = await db
        .selectFrom('account')
        .select('balance_micro_usd')
        .where('id', '=', id)
        .executeTakeFirstOrThrow();
      return row.balance_micro_usd ?? 0n;
    },
  };
}

/** Sends a request as it is given, without a client's own corrections, and holds the answer against the contract. */
export async function send(
  url: string,
  path: string,
  { method = 'GET', headers = {}, body, json }: Call = {},
): Promise<Reply> {
  const payload = json === undefined ? body : JSON.stringify(json);
  const { hostname, port } = new URL(url);
  const outgoing = httpRequest({
    hostname,
    port,
    method,
    path,
    headers: {
      ...(json !== undefined && { 'content-type': 'application/json' }),
      ...(payload !== undefined && { 'content-length': Buffer.byteLength(payload) }),
      ...headers,
    },
  });
  outgoing.end(payload);
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
  // A reset in the middle is an error of both.
  outgoing.on('error', () => {});
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const bytes = Buffer.concat(chunks);
  const reply = {
    status: incoming.statusCode ?? 0,
    headers: toHeaders(incoming),
    bytes,
    get text() {
      return bytes.toString();
    },
    get json() {
      return JSON.parse(bytes.toString());
    },
  };
  assertContract(method, path, reply);
  return reply;
}

function toHeaders(incoming: IncomingMessage): Headers {
  const headers = new Headers();
  for (const [name, value] of Object.entries(incoming.headers)) headers.set(name, String(value));
  return headers;
}

export async function fund(db: Database, cents: number): Promise<string> {
  const { accountId } = await creditTopUp(db, {
    topUpId: randomUUID(),
    sessionId: `cs_test_${randomUUID()}`,
    accountId: randomUUID(),
    livemode: false,
    amountCents: cents,
    challengeId: null,
  });
  return accountId;
}
