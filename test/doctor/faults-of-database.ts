import { openDatabase } from '../../src/db/database.ts';
import { claimInstance } from '../../src/ledger/instance.ts';
import { type Cases, untilTheEnd } from './case.ts';
import type { Scene } from './scene.ts';

const OF_DATABASE = [
  ...['replicas', 'database-version', 'durability', 'clock', 'connections', 'schema', 'constraints', 'rights', 'money'],
  ...['card-mode', 'disk'],
];

/** What is wrong with the database. */
export const FAULTS_OF_DATABASE: Cases = {
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
    make: async ({ unused, sql }, t) => {
      const { url } = await unused(t);
      await sql(`alter database ${new URL(url).pathname.slice(1)} set default_transaction_read_only = on`);
      return { own: { DATABASE_URL: url } };
    },
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
      untilTheEnd(
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
    message: /room for 24/,
    make: (scene, t) =>
      untilTheEnd(
        t,
        scene,
        'alter role speechgate_app connection limit 24',
        'alter role speechgate_app connection limit -1',
      ),
  },
  'a migration that is not done': {
    check: 'schema',
    state: 'fault',
    message: /lacks 1 migration/,
    skipped: ['constraints', 'rights', 'money', 'card-mode'],
    make: (scene, t) =>
      untilTheEnd(
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
      untilTheEnd(
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
      untilTheEnd(
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
      untilTheEnd(
        t,
        scene,
        'revoke insert on transfer from speechgate_app',
        'grant insert on transfer to speechgate_app',
      ),
  },
  'a role that can delete what was booked': {
    check: 'rights',
    state: 'warning',
    message: /delete from transfer/,
    make: (scene, t) =>
      untilTheEnd(
        t,
        scene,
        'grant delete on transfer to speechgate_app',
        'revoke delete on transfer from speechgate_app',
      ),
  },
  'the role of the owner': {
    check: 'rights',
    state: 'warning',
    message: /switch off what guards the books/,
    make: ({ ownerUrl }) => ({ own: { DATABASE_URL: ownerUrl } }),
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
};

async function setServer({ sql }: Scene, name: string, value: string): Promise<void> {
  await sql(`alter system set ${name} = ${value}`, 'select pg_reload_conf()', 'select pg_sleep(0.3)');
}
