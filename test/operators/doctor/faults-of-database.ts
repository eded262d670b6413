import { connect, createServer } from 'node:net';
import type { Test } from 'tap';
import { grantApplicationRole } from '../../../src/db/application-role.ts';
import { openDatabase } from '../../../src/db/database.ts';
import { claimInstance } from '../../../src/ledger/database-identity.ts';
import { serve } from '../../support/listening.ts';
import { type Cases, untilTheEnd } from './case.ts';
import type { Scene } from './scene.ts';

const OF_DATABASE = [
  ...['replicas', 'database-version', 'durability', 'session', 'pooler', 'commits', 'standby', 'clock', 'connections'],
  ...['schema', 'constraints', 'rights', 'money', 'card-mode'],
];

/** What is wrong with the database. */
export const FAULTS_OF_DATABASE: Cases = {
  'a missing database': {
    finds: ['fault', 'database', /connection to the database fails: .*ECONNREFUSED/],
    skipped: OF_DATABASE,
    make: () => ({ own: { DATABASE_URL: 'postgres://speechgate_app:8aeb1c2f@127.0.0.1:1/speechgate' } }),
  },
  'a read-only database': {
    finds: ['fault', 'database', /^The database is read-only/],
    skipped: ['commits'],
    make: async ({ unused, sql }, t) => {
      const { url } = await unused(t);
      await sql(`alter database ${new URL(url).pathname.slice(1)} set default_transaction_read_only = on`);
      return { own: { DATABASE_URL: url } };
    },
  },
  'PostgreSQL without fsync': {
    finds: ['fault', 'durability', /^These settings are off: fsync\./],
    make: async (scene, t) => {
      t.teardown(() => setServer(scene, 'fsync', 'on'));
      await setServer(scene, 'fsync', 'off');
      return {};
    },
  },
  'commits that do not wait for the disk': {
    finds: ['warning', 'session', /: synchronous_commit is off\. The service overrides/],
    make: untilTheEnd(
      'alter role speechgate_app set synchronous_commit = off',
      'alter role speechgate_app reset synchronous_commit',
    ),
  },
  'settings of the role and the URL that change meaning': {
    finds: [
      'warning',
      'session',
      /DateStyle is German.*; array_nulls is off; search_path is elsewhere; DATABASE_URL has statement_timeout; DATABASE_URL has options\. The service overrides/,
    ],
    make: async (scene, t) => {
      const reset = ['array_nulls', 'datestyle', 'search_path'].map(
        (name) => `alter role speechgate_app reset ${name}`,
      );
      t.teardown(() => scene.sql(...reset));
      await scene.sql(
        'alter role speechgate_app set array_nulls = off',
        "alter role speechgate_app set datestyle = 'German'",
        'alter role speechgate_app set search_path = elsewhere',
      );
      const url = `${scene.env.DATABASE_URL}?statement_timeout=1&options=-c%20array_nulls%3Doff`;
      return { own: { DATABASE_URL: url } };
    },
  },
  'a pooler that acknowledges and does not commit': {
    finds: ['fault', 'commits', /another connection does not see it/],
    make: async (scene, t) => ({ own: { DATABASE_URL: await through(t, scene, withoutCommits) } }),
  },
  'a pooler that begins a transaction and does not end it': {
    finds: ['fault', 'commits', /another connection does not see it/],
    make: async (scene, t) => ({ own: { DATABASE_URL: await through(t, scene, withOwnBegin) } }),
  },
  'a standby that no commit waits for': {
    finds: ['warning', 'standby', /synchronous_standby_names is empty/],
    make: untilTheEnd(
      "select pg_create_physical_replication_slot('standby')",
      "select pg_drop_replication_slot('standby')",
    ),
  },
  'a clock behind the database’s': {
    finds: ['fault', 'clock', / (?:9|1[01])\.\d s ahead of the clock of this machine/],
    make: () => ({ options: { now: () => Date.now() - 10_000 } }),
  },
  'a clock slightly ahead': {
    finds: ['warning', 'clock', /[23]\.\d s behind the clock of this machine/],
    make: () => ({ options: { now: () => Date.now() + 3_000 } }),
  },
  'too few connections': {
    finds: ['fault', 'connections', /the database allows 24/],
    make: untilTheEnd('alter role speechgate_app connection limit 24', 'alter role speechgate_app connection limit -1'),
  },
  'a pending migration': {
    finds: ['fault', 'schema', /lacks 1 migration/],
    skipped: ['commits', 'constraints', 'rights', 'money', 'card-mode'],
    make: untilTheEnd(
      'create table kept as select * from schema_migration where name = (select max(name) from schema_migration); ' +
        'delete from schema_migration where name in (select name from kept)',
      'insert into schema_migration select * from kept; drop table kept',
    ),
  },
  'a schema of a newer release': {
    finds: ['warning', 'schema', /9999_of_the_future/],
    make: untilTheEnd(
      "insert into schema_migration values ('9999_of_the_future', now()::text)",
      "delete from schema_migration where name = '9999_of_the_future'",
    ),
  },
  'an unvalidated constraint': {
    finds: ['warning', 'constraints', /of_old_rows/],
    make: untilTheEnd(
      'alter table feedback add constraint of_old_rows check (id is not null) not valid',
      'alter table feedback drop constraint of_old_rows',
    ),
  },
  'a role that can’t insert transfers': {
    finds: ['fault', 'rights', /can't insert into transfer/],
    make: async ({ ownerUrl, sql }, t) => {
      // It may insert some columns only.
      t.teardown(async () => {
        const db = openDatabase(ownerUrl, { maxConnections: 1 });
        await grantApplicationRole(db, 'speechgate_app').finally(() => db.destroy());
      });
      await sql('revoke insert on transfer from speechgate_app');
      return {};
    },
  },
  'a role that can delete transfers': {
    finds: ['warning', 'rights', /delete from transfer/],
    make: untilTheEnd('grant delete on transfer to speechgate_app', 'revoke delete on transfer from speechgate_app'),
  },
  'the owner’s role': {
    finds: ['warning', 'rights', /disable the triggers that protect the ledger/],
    make: ({ ownerUrl }) => ({ own: { DATABASE_URL: ownerUrl } }),
  },
  'a database of another network': {
    finds: ['fault', 'money', /on eip155:84532, but/],
    make: async ({ unused }, t) => {
      const { ownerUrl, url } = await unused(t);
      const db = openDatabase(ownerUrl, { maxConnections: 1 });
      const denomination = { network: 'eip155:84532', asset: `0x${'a'.repeat(40)}` };
      await claimInstance(db, { denomination, livemode: false }).finally(() => db.destroy());
      return { own: { DATABASE_URL: url } };
    },
  },
};

async function setServer({ sql }: Scene, name: string, value: string): Promise<void> {
  await sql(`alter system set ${name} = ${value}`, 'select pg_reload_conf()', 'select pg_sleep(0.3)');
}

/** Changes what a connection's client sends; `inject` sends a query of its own, whose answer of so many bytes is dropped. */
type Pooler = () => (sent: string, inject: (query: string, answerBytes: number) => void) => string;

/** Makes a rollback of each commit, to which the server answers as to a commit. */
const withoutCommits: Pooler = () => (sent) => sent.replace('commit\0', 'abort \0');

/** Begins a transaction before a write outside of one. */
const withOwnBegin: Pooler = () => {
  let isInTransaction = false;
  return (sent, inject) => {
    if (/begin\0|commit\0/.test(sent)) isInTransaction = sent.includes('begin\0');
    else if (!isInTransaction && sent.includes('update "rate_window"')) inject('BEGIN', 'CxxxxBEGIN.ZxxxxT'.length);
    return sent;
  };
};

/** Leads to the database by a pooler. */
async function through(t: Test, scene: Scene, pooler: Pooler): Promise<string> {
  const target = scene.env.DATABASE_URL ?? '';
  const { hostname, port } = new URL(target);
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    const change = pooler();
    let dropped = 0;
    const inject = (query: string, answerBytes: number) => {
      dropped += answerBytes;
      upstream.write(Buffer.from([0x51, 0, 0, 0, query.length + 5, ...Buffer.from(query), 0]));
    };
    client.on('data', (chunk) => upstream.write(change(chunk.toString('latin1'), inject), 'latin1'));
    upstream.on('data', (chunk) => {
      const own = Math.min(dropped, chunk.length);
      dropped -= own;
      client.write(chunk.subarray(own));
    });
    client.on('error', () => upstream.destroy()).on('close', () => upstream.destroy());
    upstream.on('error', () => client.destroy());
  });
  const url = new URL(target);
  url.port = new URL(await serve(t, server)).port;
  return url.href;
}
