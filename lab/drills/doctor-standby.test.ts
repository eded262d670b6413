import assert from 'node:assert/strict';
import { test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import type { DoctorContext } from '../../src/operators/doctor/check.ts';
import { DATABASE_CHECKS } from '../../src/operators/doctor/database-checks.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { startDebianPostgres, withoutPostgres } from './debian-postgres.ts';

test('doctor warns of a standby until commits wait for it', { skip: withoutPostgres }, async (t) => {
  const { folder, url, run } = await startDebianPostgres(t, () => '');
  const db = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const check = DATABASE_CHECKS.find(({ name }) => name === 'standby') ?? assert.fail('there is no such check');
  const examine = () => check.run({ db } as DoctorContext);
  const set = (name: string, value: string) =>
    run(
      `psql '${url}' -qc "alter system set ${name} = '${value}'" -c 'select pg_reload_conf()' -c 'select pg_sleep(0.3)'`,
    );

  t.strictSame(await examine(), { state: 'ok', message: 'The database has no standby.' });

  const standby = `${folder}/standby`;
  const port = await freePort();
  await run(`pg_basebackup --dbname='${url}' --pgdata=${standby} --write-recovery-conf --checkpoint=fast`);
  await run(`echo 'port = ${port}' >> ${standby}/postgresql.conf`);
  await run(`pg_ctl --pgdata=${standby} --log=${folder}/standby.log --wait start`);
  await run(`until psql '${url}' -Atc 'select state from pg_stat_replication' | grep -q streaming; do sleep 0.1; done`);

  const lax = await examine();
  t.equal(lax.state, 'warning');
  t.match(lax.message, /synchronous_standby_names is empty/);
  t.match(lax.fix ?? '', /alter system set synchronous_standby_names = /);

  await set('synchronous_standby_names', 'ANY 1 (*)');
  t.equal((await examine()).state, 'ok');

  await set('synchronous_commit', 'local');
  t.match((await examine()).message, /synchronous_commit is local/);
});
