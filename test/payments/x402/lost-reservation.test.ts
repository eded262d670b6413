import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { DEFAULT_ASSET } from '../../../src/config/network.ts';
import { openDatabase } from '../../../src/db/database.ts';
import { migrate } from '../../../src/db/migrate.ts';
import { Reservations } from '../../../src/payments/x402/reservations.ts';
import { findPostmaster } from '../../../src/sandbox/postgres/postmaster.ts';
import { startPostgres } from '../../../src/sandbox/postgres.ts';
import { newNonce } from '../../support/chain.ts';
import { databaseDirectory } from '../../support/database-directory.ts';
import { until } from '../../support/until.ts';

/** One that has ended by itself meanwhile is as good. */
function killNow(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** A server of its own that writes no log by itself for ten seconds, so that a crash loses what did not wait for it. */
async function startCrashing(t: Test) {
  const dataDir = await mkdtemp(join(await databaseDirectory(), 'speechgate-crash-'));
  const servers = [await startPostgres({ dataDir, durable: false })];
  const { url } = servers[0] as (typeof servers)[number];
  t.teardown(async () => {
    await servers.at(-1)?.stop();
    await rm(dataDir, { recursive: true, force: true });
  });
  await migrate(url);
  const db = openDatabase(url, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  await sql`alter system set wal_writer_delay = '10s'`.execute(db);
  await sql`select pg_reload_conf()`.execute(db);
  await sql`checkpoint`.execute(db);
  const { rows } = await sql<{ data: string }>`select current_setting('data_directory') as data`.execute(db);
  const { data } = rows[0] as { data: string };
  const crash = async () => {
    const postmaster = await findPostmaster(data);
    assert.ok(postmaster);
    const { rows } = await sql<{ pid: number }>`
      select pid from pg_stat_activity where backend_type in ('walwriter', 'checkpointer', 'background writer')`.execute(
      db,
    );
    // The postmaster first: where one of the others is killed, it ends the rest itself.
    for (const { pid } of [postmaster, ...rows]) killNow(pid);
    await until(async () => (await findPostmaster(data)) === undefined);
    servers.push(await startPostgres({ dataDir, durable: false, port: postmaster.port }));
  };
  return { db, crash };
}

test('a reservation lost in a crash neither settles nor ends the next one', async (t) => {
  const { db, crash } = await startCrashing(t);
  const reservations = new Reservations(db, {
    ...{ network: 'eip155:8453', chainId: 8453, address: DEFAULT_ASSET, name: 'USD Coin', version: '2' },
  });
  const reserve = async (payer: string) => {
    const claim = {
      ...{ payer, payTo: '0x00000000000000000000000000000000000000a1', nonce: newNonce() },
      ...{ amount: 198n, validBefore: BigInt(Math.floor(Date.now() / 1000) + 100) },
    } as const;
    const reserved = await reservations.reserve({
      ...{ purpose: 'speech', identifier: `pay_${randomUUID()}`, requestHash: Buffer.alloc(32) },
      ...{ claim: claim as never, headBlock: 0n, traceId: randomUUID() },
    });
    return reserved?.payment ?? assert.fail('it was not reserved');
  };

  const lost = await reserve('0x00000000000000000000000000000000000000b1');
  await crash();
  const other = await reserve('0x00000000000000000000000000000000000000b2');
  const kept = await db.selectFrom('x402_payment').select('id').execute();
  t.strictSame(kept, [{ id: other.id }], 'the crash has lost the reservation');

  t.equal(await reservations.beginSettling(lost), false, 'nothing may be sent for it');
  t.equal(await reservations.release(lost), false);
  await sql`update x402_payment set lease_until = now() - interval '1 second'`.execute(db);
  t.equal(await reservations.takeOver(lost, 1n), undefined);
  t.equal(await reservations.beginSettling(other), true, 'the other one is as it was');
});
