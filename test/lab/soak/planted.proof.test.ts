import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { DeleteObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { sql } from 'kysely';
import { test } from 'tap';
import { judge, type Verdict } from '../../../lab/soak/judge/judge.ts';
import { readOptions } from '../../../lab/soak/options.ts';
import { soak } from '../../../lab/soak/run.ts';
import { GATEWAYS, type GatewayName, type World } from '../../../lab/soak/world/world.ts';
import { openDatabase } from '../../../src/db/database.ts';
import { testChain } from '../../support/chain.ts';
import { lockRows } from '../../support/row-lock.ts';
import { unguarded } from '../../support/unguarded.ts';

const { skip } = await testChain();
const NOT_CHARGED = 'the audio came, and nothing is charged, although its process was neither killed nor frozen';

test('the judge reports every planted fault and nothing else', { skip }, async (t) => {
  const options = readOptions(['--seed', 'planted', '--operations', '300', '--callers', '12', '--without-faults']);
  const run = await soak(options, t, ({ phase, operations }) => t.comment(`${phase} ${operations}`));
  assert.deepEqual(run.verdict.contradictions, []);
  assert.deepEqual(new Set(Object.values(run.verdict.counts)), new Set([0]));

  await plantInBooks(run.world);
  // The reconcilers leave the planted hold alone.
  await lockRows(t, run.world.databaseUrl, sql`select from transfer where state = 'pending' for update`);
  await dropServedCard(run.told);
  const verdict = await judge(run.world, run.told, { healMs: 0 });
  const found = new Map(verdict.contradictions.map(({ words, kind }) => [words, kind]));
  for (const [words, kind] of [
    ['one operation was charged more than once', 'charged twice'],
    [NOT_CHARGED, 'served, not paid'],
    ['a charge belongs to no operation', 'paid, not served'],
    ['another amount is charged than the price', 'other'],
    ['a hold is neither captured nor void', 'hold left'],
    ['a session is paid at the processor, and not credited', 'paid, not served'],
    ['the audio of a completed job is not in the store', 'paid, not served'],
    ['the payee has got USDC that no settled payment names', 'paid, not served'],
    ['the audit finds fault', 'other'],
  ]) {
    assert.equal(found.get(words as string), kind, `${words}: ${JSON.stringify(verdict.contradictions, null, 1)}`);
  }

  const unpaid = ({ spared, contradictions }: Verdict) => [
    spared.count,
    contradictions.filter(({ words }) => words === NOT_CHARGED).length,
  ];
  assert.deepEqual(unpaid(verdict), [0, 1]);
  const now = Date.now();
  const judgeWith = (from: number, until: number, gateways: readonly GatewayName[] = GATEWAYS) =>
    judge(run.world, run.told, { healMs: 0, deaths: gateways.map((gateway) => ({ gateway, from, until })) });
  assert.deepEqual(unpaid(await judgeWith(now - 120_000, now)), [1, 0], 'its process was killed then');
  assert.deepEqual(unpaid(await judgeWith(now + 15_000, now + 20_000)), [0, 1], 'it was killed later');
  const ofEach = await Promise.all(GATEWAYS.map((gateway) => judgeWith(now - 120_000, now, [gateway])));
  assert.deepEqual(ofEach.map(({ spared }) => spared.count).sort(), [0, 1], 'only the one that had answered counts');
});

/** Each in rows of its own. */
async function plantInBooks({ databaseUrl, env }: World): Promise<void> {
  const db = openDatabase(databaseUrl, { maxConnections: 1 });
  const charge = (nth: number) => sql`(
    select id from transfer where kind = 'spend' and state = 'posted' order by id offset ${nth}::integer limit 1)`;
  const columns = sql`kind, debit_account_id, credit_account_id, amount_micro_usd, reference, trace_id`;
  try {
    const { rows } = await sql<{ key: string }>`
      select 'jobs/' || id || '/' || fence as key from job where state = 'completed' and store_audio limit 1`.execute(
      db,
    );
    await unguarded(db, async (trx) => {
      await sql`
        insert into transfer (${columns}, state, ended_at)
        select ${columns}, 'posted', now() from transfer where id = ${charge(0)}`.execute(trx);
      await sql`
        insert into transfer (${columns}, state, lease_until)
        select ${columns}, 'pending', now() + interval '15 seconds' from transfer where id = ${charge(1)}`.execute(trx);
      await sql`update transfer set amount_micro_usd = amount_micro_usd + 1 where id = ${charge(3)}`.execute(trx);
      await sql`update transfer set state = 'voided' where id = ${charge(2)}`.execute(trx);
      await sql`
        delete from transfer where id = (select id from transfer where kind = 'top_up' order by position desc limit 1)`.execute(
        trx,
      );
      await sql`
        update x402_payment set state = 'failed', failed_at = now(), settled_at = null, transaction_hash = null,
                                log_index = null, receipt = null
        where id = (select id from x402_payment where purpose = 'speech' and state = 'settled' limit 1)`.execute(trx);
    });
    const bucket = new URL(env.AUDIO_STORE ?? '');
    const s3 = new S3Client({
      ...{ endpoint: env.AWS_ENDPOINT_URL ?? '', region: env.AWS_REGION ?? '', forcePathStyle: true },
      credentials: { accessKeyId: env.AWS_ACCESS_KEY_ID ?? '', secretAccessKey: env.AWS_SECRET_ACCESS_KEY ?? '' },
    });
    const Key = `${bucket.pathname.slice(1)}/${rows[0]?.key}`;
    await s3.send(new DeleteObjectCommand({ Bucket: bucket.hostname, Key }));
  } finally {
    await db.destroy();
  }
}

/** Leaves one operation out of what callers were told. */
async function dropServedCard(told: string): Promise<void> {
  const lines = (await readFile(told, 'utf8')).split('\n');
  const at = lines.findIndex((line) => line.includes('"flow":"card"') && line.includes('"end":"served"'));
  assert.ok(at >= 0);
  await writeFile(told, lines.toSpliced(at, 1).join('\n'));
}
