import { randomBytes } from 'node:crypto';
import { appendFile, chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import type { Test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { describeFaults, readConfig } from '../../../src/config/config.ts';
import { rotateKeys, type StoredKeys } from '../../../src/config/signing-keys.ts';
import { migrate } from '../../../src/db/migrate.ts';
import { openContext } from '../../../src/operators/doctor/check.ts';
import { allChecks, type Checked, runChecks } from '../../../src/operators/doctor/run-checks.ts';
import { freePort } from '../../../src/sandbox/free-port.ts';
import { startPostgres } from '../../../src/sandbox/postgres.ts';
import { testChain } from '../../support/chain.ts';
import { testFacilitator } from '../../support/facilitator.ts';
import { type FaultyCheckout, startFaultyCheckout } from '../../support/faulty-checkout.ts';
import { type Gateway, startGateway } from '../../support/gateway.ts';
import { type MailServer, startMailServer } from '../../support/mail-server.ts';
import { type RpcNode, startRpcNode } from '../../support/rpc-node.ts';
import { S3_CREDENTIALS, startS3Server } from '../../support/s3-server.ts';
import { testUpstream } from '../../support/stub-upstream.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

export type Env = Readonly<Record<string, string>>;

const ROLE = 'speechgate_app';
const MAIL_PASSWORD = 'the password of the mail server';
const OPERATOR = 'operator@speech.example';
export const BUCKET = 'speech-audio';

/** An address of this machine that the database takes for one of another. */
export const OTHER_MACHINE = '127.0.0.77';

const secret = (bytes = 32) => randomBytes(bytes).toString('hex');

/** All parts of a configuration, each real and on this machine, and settings of which nothing is to be said. */
export type Scene = Awaited<ReturnType<typeof startScene>>;

/** Starts every part once. */
export async function startScene(t: Test) {
  const folder = await temporaryFolder(t);
  const { databaseUrl, ...database } = await startDatabase(t, folder);
  const { skip, chain } = await testChain();
  const checkout = await startFaultyCheckout(t, { secretKey: `rk_test_${secret(12)}` });
  const upstream = await testUpstream(t);
  /** Between the service and the chain. */
  const node: RpcNode = skip ? (undefined as never) : await startRpcNode(t, chain.rpcUrl);
  const s3 = await startS3Server(BUCKET);
  t.teardown(() => s3.stop());
  Object.assign(process.env, S3_CREDENTIALS, { AWS_ENDPOINT_URL: s3.endpoint });
  const mail = await startMail(t);
  await mkdir(join(folder, 'data'));
  const env: Env = {
    DATABASE_URL: databaseUrl,
    DATA_DIR: join(folder, 'data'),
    MAX_CONNECTIONS: '500',
    SPEECH_BASE_URL: upstream.url,
    STRIPE_SECRET_KEY: checkout.secretKey,
    STRIPE_API_BASE: checkout.apiBase,
    X402_PAY_TO: privateKeyToAccount(generatePrivateKey()).address,
    X402_FACILITATOR_URL: skip ? 'http://127.0.0.1:1' : (await testFacilitator(t, chain, { auth: 'a-token' })).url,
    X402_FACILITATOR_AUTH: 'a-token',
    X402_RPC_URL: skip ? 'http://127.0.0.1:1' : node.url,
    QUOTE_SECRET: secret(),
    JOB_SIGNING_SECRET: secret(),
    FEEDBACK_SECRET: secret(),
    SIGNING_KEYS_FILE: await writeKeys(folder, 'keys.json'),
    SMTP_URL: mail.url.replace('//', `//speech:${encodeURIComponent(MAIL_PASSWORD)}@`),
    FEEDBACK_FROM: 'speech@speech.example',
    FEEDBACK_TO: OPERATOR,
    RECONCILE_INTERVAL_MS: '60000',
    TOP_UP_RATE_LIMIT_MAX: '10',
  };
  return { env, folder, skip, chain, node, upstream, checkout, s3, mail, ...database };
}

/** A key file of mode 0600 or another, changed before it is written. */
export async function writeKeys(
  folder: string,
  name: string,
  change: (keys: StoredKeys) => void = () => {},
  mode = 0o600,
): Promise<string> {
  const keys = rotateKeys(undefined, new Date());
  change(keys);
  const file = join(folder, name);
  await writeFile(file, JSON.stringify(keys));
  await chmod(file, mode);
  return file;
}

/** Ports and an address for a service that is to be started. */
export async function freePlaces(): Promise<{ PORT: string; ADMIN_PORT: string; BASE_URL: string }> {
  const [port, adminPort] = [await freePort(), await freePort()];
  return { PORT: String(port), ADMIN_PORT: String(adminPort), BASE_URL: `http://127.0.0.1:${port}` };
}

/** The gateway of these settings with its operators' listener; and all settings that it has. */
export async function startService(t: Test, settings: Env): Promise<{ env: Env; log: Gateway['log'] }> {
  const env: Env = { RATE_LIMIT_MAX: '1000', EDGE_RATE_LIMIT_MAX: '100000', LOG_LEVEL: 'warn', ...settings };
  const { app, log } = await startGateway(t, { CHECKOUT_ORIGIN: '', ...env }, { databaseUrl: env.DATABASE_URL ?? '' });
  await app.admin.listen({ host: '127.0.0.1', port: Number(env.ADMIN_PORT) });
  return { env, log };
}

export interface Options {
  readonly now?: () => number;
  readonly left?: readonly string[];
}

/** What doctor finds with these settings. */
export async function examine(env: Env, { now = Date.now, left = [] }: Options = {}): Promise<Checked[]> {
  const read = readConfig(env);
  if (read.outcome === 'faulty') throw new Error(describeFaults(read.faults));
  const { config, misspelt } = read;
  const options = { config, misspelt, now, keysFile: env.SIGNING_KEYS_FILE, isSandbox: false, speaks: true };
  const context = openContext(options);
  const told: Checked[] = [];
  for await (const checked of runChecks(allChecks(options), context, new Set(left))) told.push(checked);
  await context.db.destroy();
  return told;
}

/** A key of the processor that lacks the permission for these calls. */
export const lacking =
  (...calls: readonly string[]): FaultyCheckout['fault'] =>
  (method, path, response) => {
    if (!calls.some((call) => `${method} ${path}`.startsWith(call))) return false;
    const message = 'The provided key does not have the required permissions for this endpoint.';
    response
      .writeHead(403, { 'content-type': 'application/json' })
      .end(JSON.stringify({ error: { type: 'invalid_request_error', message } }));
    return true;
  };

/** PostgreSQL as it is meant to be run: durable, with a role of the application that may look at its settings. */
async function startDatabase(t: Test, folder: string) {
  const postgres = await startPostgres({ dataDir: join(folder, 'postgres') });
  const owner = new pg.Client(postgres.url);
  await owner.connect();
  const rules = await owner.query<{ hba_file: string }>('show hba_file');
  await appendFile(rules.rows[0]?.hba_file ?? '', `\nhost all all ${OTHER_MACHINE}/32 scram-sha-256\n`);
  await owner.query('select pg_reload_conf()');
  t.teardown(async () => {
    await owner.end();
    await postgres.stop();
  });
  /** Runs statements as the database's owner. */
  const sql = async (...statements: readonly string[]) => {
    for (const statement of statements) await owner.query(statement);
  };
  const password = secret(16);
  await sql(`create role ${ROLE} login password '${password}'`, `grant pg_read_all_settings to ${ROLE}`);
  await migrate(postgres.url);
  const ofOwner = (database: string) => {
    const url = new URL(postgres.url);
    url.pathname = `/${database}`;
    return url.href;
  };
  await sql('create database unused');
  await migrate(ofOwner('unused'));
  /** Another database on the same server, migrated and used by nobody. */
  const unused = async (t: Test) => {
    const name = `unused_${secret(4)}`;
    await sql(`create database ${name} template unused strategy file_copy`);
    t.teardown(() => sql(`drop database ${name} with (force)`));
    const url = new URL(ofOwner(name));
    Object.assign(url, { username: ROLE, password });
    return { ownerUrl: ofOwner(name), url: url.href };
  };
  const url = new URL(postgres.url);
  Object.assign(url, { username: ROLE, password });
  return { ownerUrl: postgres.url, databaseUrl: url.href, sql, unused };
}

/** A mail server that wants a password, and takes mail for the operator only. */
const startMail = (t: Test): Promise<MailServer> =>
  startMailServer(t, 0, {
    ...{ authOptional: false, allowInsecureAuth: true, disabledCommands: ['STARTTLS'] },
    onAuth: ({ username, password }, _session, done) =>
      password === MAIL_PASSWORD ? done(null, { user: username ?? '' }) : done(new Error('wrong password')),
    onRcptTo: ({ address }, _session, done) =>
      done(address === OPERATOR ? null : Object.assign(new Error('no such user'), { responseCode: 550 })),
  });
