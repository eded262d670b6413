import { spawnSync } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { Socket } from 'node:net';
import { join } from 'node:path';
import pg from 'pg';
import type { Test } from 'tap';
import { zeroAddress } from 'viem';
import { openDatabase } from '../../src/db/database.ts';
import { claimInstance } from '../../src/ledger/instance.ts';
import { MULTICALL } from '../../src/sandbox/chain/chain-client.ts';
import { testFacilitator } from '../support/facilitator.ts';
import { unfinalized } from '../support/rpc-node.ts';
import { openAiError, wav } from '../support/stub-upstream.ts';
import {
  BUCKET,
  type Env,
  lacking,
  type Options,
  OTHER_MACHINE,
  type Scene,
  serve,
  startService,
  writeKeys,
} from './scene.ts';

/** How a configuration is made wrong in one point. What it changes of the scene, the test's end undoes. */
export interface Wrong {
  /** Settings that all have, the service and doctor. */
  readonly all?: Env;
  /** Settings of doctor only. */
  readonly own?: Env;
  readonly options?: Options;
}

export interface Case {
  /** The check that tells of it. */
  readonly check: string;
  readonly state: 'fault' | 'warning';
  readonly message: RegExp;
  /** Checks that can't be made then. */
  readonly skipped?: readonly string[];
  /** Settings of the service, once it runs. */
  readonly make: (scene: Scene, t: Test, running: Env) => Promise<Wrong> | Wrong;
  /** Why it can't be made on this machine. */
  readonly skip?: string | false;
}

const DAY_MS = 86_400_000;
const OF_DATABASE = [
  ...['replicas', 'database-version', 'durability', 'clock', 'connections', 'schema', 'constraints', 'rights', 'money'],
  ...['card-mode', 'disk'],
];
const OF_NODE = ['node-logs', 'asset', 'payee'];
const OF_PUBLIC = ['identity', 'proxies', 'forged-addresses'];
const daysFromNow = (days: number) => new Date(Date.now() + days * DAY_MS).toISOString();

/** Changes the database as its owner until the test ends. */
async function until(t: Test, scene: Scene, change: string, undo: string): Promise<Wrong> {
  t.teardown(() => scene.sql(undo));
  await scene.sql(change);
  return {};
}

/** A tmpfs of this size, where this process may mount one. */
const canMount =
  process.getuid?.() === 0 && spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', '/mnt']).status === 0;
if (canMount) spawnSync('umount', ['/mnt']);

/** A proxy in front of the service that hands on this X-Forwarded-For. */
const proxy = (
  t: Test,
  target: string | undefined,
  forwarded: (received: string | undefined, peer: string) => string,
) =>
  serve(t, (incoming, response) => {
    const peer = incoming.socket.remoteAddress ?? '';
    const received = incoming.headers['x-forwarded-for'] as string | undefined;
    const headers = { ...incoming.headers, 'x-forwarded-for': forwarded(received, peer) };
    const outgoing = request(`${target}${incoming.url}`, { method: incoming.method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    incoming.pipe(outgoing);
  });

const adding = (received: string | undefined, peer: string) => (received ? `${received}, ${peer}` : peer);

/** Each thing that can be wrong, made for real, and what doctor says of it. */
export const cases: Readonly<Record<string, Case>> = {
  'a variable that is misspelt': {
    check: 'settings',
    state: 'warning',
    message: /QUOTE_SECRETS \(QUOTE_SECRET\?\)/,
    make: () => ({ own: { QUOTE_SECRETS: 'x' } }),
  },
  'fewer file descriptors than connections': {
    check: 'file-descriptors',
    state: 'fault',
    message: /MAX_CONNECTIONS is 1000000/,
    skip: process.platform === 'linux' ? false : 'only Linux tells',
    make: () => ({ own: { MAX_CONNECTIONS: '1000000' } }),
  },
  'a second machine, and audio in a folder': {
    check: 'replicas',
    state: 'warning',
    message: /^2 machines/,
    make: async ({ env }, t) => {
      const client = new pg.Client({
        connectionString: env.DATABASE_URL,
        application_name: 'speechgate',
        stream: elsewhere,
      });
      await client.connect();
      t.teardown(() => client.end());
      return {};
    },
  },
  'a secret that is a placeholder': {
    check: 'secrets',
    state: 'fault',
    message: /^JOB_SIGNING_SECRET: .* guessed/,
    make: () => ({ all: { JOB_SIGNING_SECRET: 'change-me-change-me-change-me-please' } }),
  },
  'a secret of one letter': {
    check: 'secrets',
    state: 'fault',
    message: /^QUOTE_SECRET: .* guessed/,
    make: ({ env }) => ({ all: { QUOTE_SECRET: `${env.QUOTE_SECRET},${'k'.repeat(64)}` } }),
  },
  'a sandbox’s own secret': {
    check: 'secrets',
    state: 'fault',
    message: /^FEEDBACK_SECRET: a secret of the sandbox/,
    make: async ({ env, folder }) => {
      const dataDir = join(folder, 'of-a-sandbox');
      await mkdir(dataDir);
      await writeFile(join(dataDir, 'sandbox-keys.json'), JSON.stringify({ feedbackSecret: env.FEEDBACK_SECRET }));
      return { all: { DATA_DIR: dataDir } };
    },
  },
  'one secret for two purposes': {
    check: 'secrets',
    state: 'warning',
    message: /^JOB_SIGNING_SECRET, FEEDBACK_SECRET|^FEEDBACK_SECRET, JOB_SIGNING_SECRET/,
    make: ({ env }) => ({ all: { FEEDBACK_SECRET: env.JOB_SIGNING_SECRET ?? '' } }),
  },
  'a well-known password of the database': {
    check: 'database-password',
    state: 'warning',
    message: /well-known/,
    make: async (scene, t) => {
      const url = new URL(scene.env.DATABASE_URL ?? '');
      await until(
        t,
        scene,
        "alter role speechgate_app password 'changeme'",
        `alter role speechgate_app password '${url.password}'`,
      );
      url.password = 'changeme';
      return { all: { DATABASE_URL: url.href } };
    },
  },
  'a database that is not there': {
    check: 'database',
    state: 'fault',
    message: /can't be reached: .*ECONNREFUSED/,
    skipped: OF_DATABASE,
    make: () => ({ own: { DATABASE_URL: 'postgres://speechgate_app:8aeb1c2f@127.0.0.1:1/speechgate' } }),
  },
  'a wrong password of the database': {
    check: 'database',
    state: 'fault',
    message: /refuses: password authentication failed/,
    skipped: OF_DATABASE,
    make: ({ env }) => {
      const url = new URL(env.DATABASE_URL ?? '');
      url.password = 'e0b1f7a2c3d4';
      return { own: { DATABASE_URL: url.href } };
    },
  },
  'a database that is read-only': {
    check: 'database',
    state: 'fault',
    message: /read-only/,
    skipped: ['identity', 'forged-addresses'],
    make: (scene, t) =>
      until(
        t,
        scene,
        'alter role speechgate_app set default_transaction_read_only = on',
        'alter role speechgate_app reset default_transaction_read_only',
      ),
  },
  'PostgreSQL without fsync': {
    check: 'durability',
    state: 'fault',
    message: /^fsync off/,
    make: async (scene, t) => {
      t.teardown(() => setServer(scene, 'fsync', 'on'));
      await setServer(scene, 'fsync', 'off');
      return {};
    },
  },
  'commits that do not wait for the disk': {
    check: 'durability',
    state: 'fault',
    message: /^synchronous_commit off/,
    make: (scene, t) =>
      until(
        t,
        scene,
        'alter role speechgate_app set synchronous_commit = off',
        'alter role speechgate_app reset synchronous_commit',
      ),
  },
  'a clock that is behind the database’s': {
    check: 'clock',
    state: 'fault',
    message: /10\.\d s ahead of ours/,
    make: () => ({ options: { now: () => Date.now() - 10_000 } }),
  },
  'a clock that is somewhat ahead': {
    check: 'clock',
    state: 'warning',
    message: /[23]\.\d s behind ours/,
    make: () => ({ options: { now: () => Date.now() + 3_000 } }),
  },
  'too few connections': {
    check: 'connections',
    state: 'fault',
    message: /room for 15/,
    make: (scene, t) =>
      until(t, scene, 'alter role speechgate_app connection limit 15', 'alter role speechgate_app connection limit -1'),
  },
  'a migration that is not done': {
    check: 'schema',
    state: 'fault',
    message: /lacks 1 migration/,
    skipped: ['constraints', 'rights', 'money', 'card-mode'],
    make: (scene, t) =>
      until(
        t,
        scene,
        'create table kept as select * from schema_migration where name = (select max(name) from schema_migration); ' +
          'delete from schema_migration where name in (select name from kept)',
        'insert into schema_migration select * from kept; drop table kept',
      ),
  },
  'a schema of a newer release': {
    check: 'schema',
    state: 'warning',
    message: /9999_of_the_future/,
    make: (scene, t) =>
      until(
        t,
        scene,
        "insert into schema_migration values ('9999_of_the_future', now()::text)",
        "delete from schema_migration where name = '9999_of_the_future'",
      ),
  },
  'a constraint that was never validated': {
    check: 'constraints',
    state: 'warning',
    message: /of_old_rows/,
    make: (scene, t) =>
      until(
        t,
        scene,
        'alter table feedback add constraint of_old_rows check (id is not null) not valid',
        'alter table feedback drop constraint of_old_rows',
      ),
  },
  'a role that can’t book': {
    check: 'rights',
    state: 'fault',
    message: /can't insert into transfer/,
    make: (scene, t) =>
      until(t, scene, 'revoke insert on transfer from speechgate_app', 'grant insert on transfer to speechgate_app'),
  },
  'a role that can delete what was booked': {
    check: 'rights',
    state: 'warning',
    message: /delete from transfer/,
    make: (scene, t) =>
      until(t, scene, 'grant delete on transfer to speechgate_app', 'revoke delete on transfer from speechgate_app'),
  },
  'the role of the owner': {
    check: 'rights',
    state: 'warning',
    message: /switch off what guards the books/,
    make: ({ ownerUrl }) => ({ all: { DATABASE_URL: ownerUrl } }),
  },
  'a database of another network': {
    check: 'money',
    state: 'fault',
    message: /belongs to eip155:84532/,
    make: async ({ unused }, t) => {
      const { ownerUrl, url } = await unused(t);
      const db = openDatabase(ownerUrl, { maxConnections: 1 });
      const denomination = { network: 'eip155:84532', asset: `0x${'a'.repeat(40)}` };
      await claimInstance(db, { denomination, livemode: false }).finally(() => db.destroy());
      return { own: { DATABASE_URL: url } };
    },
  },
  'an upstream that refuses the key': {
    check: 'upstream',
    state: 'fault',
    message: /^tts-1(-hd)? with .* status 401/,
    make: ({ upstream }, t) => speaking(upstream, t, openAiError(401)),
  },
  'an upstream that speaks WAV': {
    check: 'upstream',
    state: 'fault',
    message: /speaks WAV/,
    make: ({ upstream }, t) => speaking(upstream, t, wav()),
  },
  'a wrong key of the card processor': {
    check: 'card-key',
    state: 'fault',
    message: /refuses the key/,
    skipped: ['card-permissions'],
    make: () => ({ all: { STRIPE_SECRET_KEY: 'rk_test_of_somebody_else' } }),
  },
  'a card processor that is away': {
    check: 'card-key',
    state: 'fault',
    message: /no usable answer/,
    skipped: ['card-permissions'],
    make: () => ({ all: { STRIPE_API_BASE: 'http://127.0.0.1:1' } }),
  },
  'a live key on a database of test purchases': {
    check: 'card-mode',
    state: 'fault',
    message: /is a live key, .* with a test one/,
    make: async ({ checkout, env }, t) => {
      const key = checkout.secretKey.replace('_test_', '_live_');
      const apiBase = await serve(t, (incoming, response) => {
        const headers = { ...incoming.headers, authorization: `Bearer ${checkout.secretKey}` };
        const outgoing = request(
          `${env.STRIPE_API_BASE}${incoming.url}`,
          { method: incoming.method, headers },
          (answer) => {
            response.writeHead(answer.statusCode ?? 502, answer.headers);
            answer.pipe(response);
          },
        );
        incoming.pipe(outgoing);
      });
      return { all: { STRIPE_SECRET_KEY: key, STRIPE_API_BASE: apiBase } };
    },
  },
  'a restricted key that can’t read disputes': {
    check: 'card-permissions',
    state: 'fault',
    message: /lacks: Disputes: read\.$/,
    make: ({ checkout }, t) => lackingOf(checkout, t, 'GET /v1/disputes'),
  },
  'a restricted key that can only read': {
    check: 'card-permissions',
    state: 'fault',
    message: /lacks: Checkout Sessions: write\.$/,
    make: ({ checkout }, t) => lackingOf(checkout, t, 'POST '),
  },
  'a facilitator for another network': {
    check: 'facilitator',
    state: 'fault',
    message: /does not support exact on eip155:8453/,
    make: async ({ chain }, t) => {
      const { url } = await testFacilitator(t, chain, { chainId: 84532, auth: 'a-token' });
      return { all: { X402_FACILITATOR_URL: url } };
    },
  },
  'a facilitator that wants another token': {
    check: 'facilitator',
    state: 'fault',
    message: /refuses us with status 401/,
    make: () => ({ all: { X402_FACILITATOR_AUTH: 'another-token' } }),
  },
  'a facilitator that is away': {
    check: 'facilitator',
    state: 'fault',
    message: /no answer: ECONNREFUSED/,
    make: () => ({ all: { X402_FACILITATOR_URL: 'http://127.0.0.1:1' } }),
  },
  'a node of another chain': {
    check: 'node',
    state: 'fault',
    message: /node of chain 84532, and X402_NETWORK is eip155:8453/,
    skipped: OF_NODE,
    make: ({ node }, t) =>
      lying(node, t, ({ method }) => (method === 'eth_chainId' ? { result: '0x14a34' } : undefined)),
  },
  'a node that is away': {
    check: 'node',
    state: 'fault',
    message: /no answer to eth_chainId/,
    skipped: OF_NODE,
    make: () => ({ all: { X402_RPC_URL: 'http://127.0.0.1:1' } }),
  },
  'a node that lags': {
    check: 'node',
    state: 'fault',
    message: /s old: it lags/,
    make: ({ node, chain }, t) => {
      const old = `0x${Math.floor(Date.now() / 1000 - 600).toString(16)}`;
      return lying(node, t, async ({ method, params }) => {
        if (method !== 'eth_getBlockByNumber' || params[0] !== 'latest') return undefined;
        const block = await chain.client.getBlock();
        return { result: { number: `0x${block.number.toString(16)}`, timestamp: old } };
      });
    },
  },
  'a chain whose time is ahead': {
    check: 'node',
    state: 'fault',
    message: /s ahead of our clock/,
    make: async ({ chain: { client } }, t) => {
      const id = await client.snapshot();
      t.teardown(() => client.revert({ id }));
      await client.setNextBlockTimestamp({ timestamp: BigInt(Math.floor(Date.now() / 1000) + 300) });
      await client.mine({ blocks: 1 });
      return {};
    },
  },
  'a node that knows no finalized block': {
    check: 'node',
    state: 'warning',
    message: /no finalized block/,
    make: ({ node }, t) => lying(node, t, unfinalized),
  },
  'a node that keeps no logs': {
    check: 'node-logs',
    state: 'fault',
    message: /does not answer for the logs of a day ago/,
    make: ({ node }, t) =>
      lying(node, t, ({ method }) =>
        method === 'eth_getLogs' ? { error: { code: -32000, message: 'history has been pruned' } } : undefined,
      ),
  },
  'an asset that is not there': {
    check: 'asset',
    state: 'fault',
    message: /no contract at/,
    make: async ({ unused }, t) => ({
      all: { X402_ASSET: '0x00000000000000000000000000000000000000f1', DATABASE_URL: (await unused(t)).url },
    }),
  },
  'an asset that is no token': {
    check: 'asset',
    state: 'fault',
    message: /tells no decimals/,
    make: async ({ unused }, t) => ({ all: { X402_ASSET: MULTICALL, DATABASE_URL: (await unused(t)).url } }),
  },
  'another EIP-712 domain': {
    check: 'asset',
    state: 'fault',
    message: /domain is not USDC, version 2/,
    make: () => ({ all: { X402_ASSET_NAME: 'USDC' } }),
  },
  'a contract as payee': {
    check: 'payee',
    state: 'fault',
    message: /is a contract/,
    make: () => ({ all: { X402_PAY_TO: MULTICALL } }),
  },
  'the token as payee': {
    check: 'payee',
    state: 'fault',
    message: /is the token itself/,
    make: ({ chain }) => ({ all: { X402_PAY_TO: chain.asset } }),
  },
  'the zero address as payee': {
    check: 'payee',
    state: 'fault',
    message: /is the zero address/,
    make: () => ({ all: { X402_PAY_TO: zeroAddress } }),
  },
  'a signing key that ends within a week': {
    check: 'signing-keys',
    state: 'fault',
    message: /ends in 4 days/,
    make: async ({ folder }) => ({ all: { SIGNING_KEYS_FILE: await endingKeys(folder, 5) } }),
  },
  'a signing key that ends within a month': {
    check: 'signing-keys',
    state: 'warning',
    message: /ends in 19 days/,
    make: async ({ folder }) => ({ all: { SIGNING_KEYS_FILE: await endingKeys(folder, 20) } }),
  },
  'a key file that others can read': {
    check: 'signing-keys-file',
    state: 'fault',
    message: /mode 0644/,
    make: async ({ folder }) => ({
      all: { SIGNING_KEYS_FILE: await writeKeys(folder, 'open.json', undefined, 0o644) },
    }),
  },
  'a mail server that is away': {
    check: 'mail',
    state: 'fault',
    message: /can't be used: E/,
    make: () => ({ all: { SMTP_URL: 'smtp://speech:word@127.0.0.1:1' } }),
  },
  'a wrong password of the mail server': {
    check: 'mail',
    state: 'fault',
    message: /refuses our credentials \(535\)/,
    make: ({ env }) => ({ all: { SMTP_URL: (env.SMTP_URL ?? '').replace(/:[^:@]*@/, ':wrong@') } }),
  },
  'a recipient that the mail server does not know': {
    check: 'mail',
    state: 'fault',
    message: /no mail for nobody@speech\.example \(550\)/,
    make: () => ({ all: { FEEDBACK_TO: 'operator@speech.example, nobody@speech.example' } }),
  },
  'a folder for audio that can’t be made': {
    check: 'audio-store',
    state: 'fault',
    message: /can't be written \(ENOTDIR\)/,
    make: async ({ folder }) => {
      await writeFile(join(folder, 'a-file'), '');
      return { all: { AUDIO_STORE: `file:${join(folder, 'a-file', 'audio')}` } };
    },
  },
  'a bucket that is not there': {
    check: 'audio-store',
    state: 'fault',
    message: /can't be written \(NoSuchBucket\)/,
    make: () => ({ all: { AUDIO_STORE: 's3://no-such-bucket/audio' } }),
  },
  'a bucket that may not be deleted from': {
    check: 'audio-store',
    state: 'fault',
    message: /can't be deleted \(AccessDenied\)/,
    make: async ({ s3 }, t) => {
      const denied = '<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>';
      const endpoint = await serve(t, (incoming, response) => {
        if (incoming.method === 'DELETE')
          return response.writeHead(403, { 'content-type': 'application/xml' }).end(denied);
        const { method, headers, url } = incoming;
        const outgoing = request(`${s3.endpoint}${url}`, { method, headers }, (answer) => {
          response.writeHead(answer.statusCode ?? 502, answer.headers);
          answer.pipe(response);
        });
        return incoming.pipe(outgoing);
      });
      process.env.AWS_ENDPOINT_URL = endpoint;
      t.teardown(() => {
        process.env.AWS_ENDPOINT_URL = s3.endpoint;
      });
      return { all: { AUDIO_STORE: `s3://${BUCKET}/audio` } };
    },
  },
  'links to audio that are not signed': {
    check: 'audio-links',
    state: 'warning',
    message: /not signed/,
    make: () => ({ all: { JOB_SIGNING_SECRET: '' } }),
  },
  'a disk that is almost full': {
    check: 'disk',
    state: 'fault',
    message: /^0\.1 GiB of 0\.1 GiB are free/,
    skip: canMount ? false : 'this process may not mount a file system',
    make: async ({ folder }, t) => {
      const audio = join(folder, 'small');
      await mkdir(audio);
      spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', audio]);
      t.teardown(() => {
        spawnSync('umount', [audio]);
      });
      return { all: { AUDIO_STORE: `file:${audio}` } };
    },
  },
  'a BASE_URL where nothing answers': {
    check: 'base-url',
    state: 'fault',
    message: /gives no answer: ECONNREFUSED/,
    skipped: OF_PUBLIC,
    make: () => ({ own: { BASE_URL: 'http://127.0.0.1:1' } }),
  },
  'a BASE_URL of something else': {
    check: 'base-url',
    state: 'fault',
    message: /is no Speechgate \(status 200\)/,
    skipped: OF_PUBLIC,
    make: async (_scene, t) => ({ own: { BASE_URL: await serve(t, (_, response) => response.end('Welcome')) } }),
  },
  'a BASE_URL of another Speechgate': {
    check: 'identity',
    state: 'fault',
    message: /not signed by/,
    make: async ({ env, folder }, t, { ADMIN_PORT = '' }) => {
      const SIGNING_KEYS_FILE = await writeKeys(folder, 'others.json');
      const { env: other } = await startService(t, { ...env, SIGNING_KEYS_FILE });
      return { own: { BASE_URL: other.BASE_URL ?? '', ADMIN_PORT } };
    },
  },
  'a BASE_URL of another Speechgate, told by its quotes': {
    check: 'identity',
    state: 'fault',
    message: /its quotes are not ours/,
    skipped: ['signing-keys', 'signing-keys-file'],
    make: async ({ env }, t) => {
      const settings = { ...env, SIGNING_KEYS_FILE: '' };
      const { env: other } = await startService(t, {
        ...settings,
        QUOTE_SECRET: 'd09a1e'.repeat(9) + String(Math.random()),
      });
      return { own: { BASE_URL: other.BASE_URL ?? '', SIGNING_KEYS_FILE: '' } };
    },
  },
  'a process that still runs with another payee': {
    check: 'identity',
    state: 'fault',
    message: /other settings than these: X402_PAY_TO/,
    make: ({ env }) => ({ own: { X402_PAY_TO: `${env.X402_PAY_TO?.slice(0, -4).toLowerCase()}beef` } }),
  },
  'a proxy that TRUST_PROXY lacks': {
    check: 'proxies',
    state: 'fault',
    message: /is not believed/,
    make: async (_scene, t, { PORT }) => ({ all: { BASE_URL: await proxy(t, `http://127.0.0.1:${PORT}`, adding) } }),
  },
  'a TRUST_PROXY without a proxy': {
    check: 'proxies',
    state: 'warning',
    message: /no request through BASE_URL came by a proxy/,
    make: () => ({ all: { TRUST_PROXY: '10.0.0.0/8' } }),
  },
  'a TRUST_PROXY that believes half the world': {
    check: 'forged-addresses',
    state: 'fault',
    message: /believes half the world \(0\.0\.0\.0\/1\)/,
    make: async (_scene, t, { PORT }) => ({
      all: { TRUST_PROXY: '0.0.0.0/1,128.0.0.0/1', BASE_URL: await proxy(t, `http://127.0.0.1:${PORT}`, adding) },
    }),
  },
  'a proxy that hands on what callers invent': {
    check: 'forged-addresses',
    state: 'fault',
    message: /is believed: limits count nobody/,
    make: async (_scene, t, { PORT }) => ({
      all: {
        TRUST_PROXY: '127.0.0.1',
        BASE_URL: await proxy(t, `http://127.0.0.1:${PORT}`, (received, peer) => received ?? peer),
      },
    }),
  },
};

/** Configurations that differ from the scene's, and in which nothing is wrong either. */
export const healthy: Readonly<Record<string, Case['make']>> = {
  'a bucket for audio': () => ({ all: { AUDIO_STORE: `s3://${BUCKET}/audio` } }),
  'a proxy that is believed': async (_scene, t, { PORT }) => ({
    all: { TRUST_PROXY: '127.0.0.1', BASE_URL: await proxy(t, `http://127.0.0.1:${PORT}`, adding) },
  }),
  'two nodes, one payee that retires': ({ env, chain }) => ({
    all: {
      X402_RPC_URL: `${env.X402_RPC_URL},${chain.rpcUrl}`,
      X402_PAY_TO: `${env.X402_PAY_TO},0x00000000000000000000000000000000000000b2:retiring`,
    },
  }),
};

async function setServer({ sql }: Scene, name: string, value: string): Promise<void> {
  await sql(`alter system set ${name} = ${value}`, 'select pg_reload_conf()', 'select pg_sleep(0.3)');
}

function speaking(upstream: Scene['upstream'], t: Test, mode: Scene['upstream']['mode']): Wrong {
  const { mode: before } = upstream;
  t.teardown(() => {
    upstream.mode = before;
  });
  upstream.mode = mode;
  return {};
}

function lackingOf(checkout: Scene['checkout'], t: Test, call: string): Wrong {
  const { fault: before } = checkout;
  t.teardown(() => {
    checkout.fault = before;
  });
  checkout.fault = lacking(call);
  return {};
}

function lying(node: Scene['node'], t: Test, falsehood: Scene['node']['falsehood']): Wrong {
  const { falsehood: before } = node;
  t.teardown(() => {
    node.falsehood = before;
  });
  node.falsehood = falsehood;
  return {};
}

const endingKeys = (folder: string, days: number): Promise<string> =>
  writeKeys(folder, `ending-in-${days}.json`, ({ keys: [current] }) => {
    if (current) current.validUntil = daysFromNow(days);
  });

/** A connection of another address of this machine. */
function elsewhere(): Socket {
  const socket = new Socket();
  const connect = socket.connect.bind(socket) as (options: object) => Socket;
  socket.connect = ((port: number, host: string) => connect({ port, host, localAddress: OTHER_MACHINE })) as never;
  return socket;
}
