import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { test } from 'tap';
import { claimJob } from '../../src/jobs/claim-job.ts';
import { completeJob, failJob } from '../../src/jobs/end-job.ts';
import { audit } from '../../src/ledger/audit.ts';
import { startGateway } from '../support/gateway.ts';
import { later } from '../support/jobs.ts';
import { brokenRules, rolledBack } from '../support/rolled-back.ts';
import { unguarded } from '../support/unguarded.ts';

const HOLD = 'a hold has ended, is within its lease, or is owned by a live job';
const STATE =
  "a job's hold is pending while it lives, posted when it is completed, voided when it failed, and has its fence";
const TEXT = 'a job that has ended has no text (R18), and one that lives has';

test('each rule about jobs and their holds is broken by its own damage', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const make = async () => (await later(gateway, account)).json.jobId as string;
  const ended = async (as: 'completed' | 'failed') => {
    const claim = await claimJob(gateway.db, await make(), randomUUID());
    assert.ok(claim);
    if (as === 'completed') await completeJob(gateway.db, claim, { mimeType: 'audio/mpeg', sizeBytes: 1 }, 60);
    else await failJob(gateway.db, claim, { code: 'TTS_UNAVAILABLE', message: 'x' }, 60);
    return claim.jobId;
  };
  const [queued, completed, failed] = [await make(), await ended('completed'), await ended('failed')];
  // Only a constraint keeps the text; the audit must see it without.
  await sql`
    do $$ declare name text; begin
      for name in select conname from pg_constraint where conrelid = 'job'::regclass and contype = 'c' loop
        execute format('alter table job drop constraint %I', name);
      end loop;
    end $$`.execute(gateway.db);
  assert.deepEqual(await audit(gateway.db), []);

  const hold = (jobId: string) => sql`(select hold_id from job where id = ${jobId})`;
  const damages: [name: string, damage: ReturnType<typeof sql>, rules: string[]][] = [
    ['a queued job vanishes', sql`delete from job where id = ${queued}`, [HOLD]],
    [
      'a job fails and keeps its hold',
      sql`update job set state = 'failed', text = null where id = ${queued}`,
      [HOLD, STATE],
    ],
    [
      "a queued job's hold is posted",
      sql`update transfer set state = 'posted', ended_at = now() where id = ${hold(queued)}`,
      [STATE],
    ],
    ['a completed job was not captured', sql`update job set state = 'failed' where id = ${completed}`, [STATE]],
    ['a failed job was charged', sql`update job set state = 'completed' where id = ${failed}`, [STATE]],
    [
      "a job's hold has a lease",
      sql`update transfer set lease_until = now() + interval '1 hour' where id = ${hold(queued)}`,
      [STATE],
    ],
    ['fences differ', sql`update job set fence = fence + 1 where id = ${queued}`, [STATE]],
    ["another account's hold", sql`update job set account_id = gen_random_uuid() where id = ${queued}`, [STATE]],
    ['a text outlives its job', sql`update job set text = 'still here' where id = ${completed}`, [TEXT]],
    ['a failed job keeps its text', sql`update job set text = 'still here' where id = ${failed}`, [TEXT]],
    ['a live job lost its text', sql`update job set text = null where id = ${queued}`, [TEXT]],
  ];
  for (const [name, damage, rules] of damages) {
    const found = await rolledBack(gateway.db, async (trx) => {
      await unguarded(trx, () => damage.execute(trx));
      return brokenRules(trx);
    });
    assert.deepEqual(
      found.filter((rule) => [HOLD, STATE, TEXT].includes(rule)),
      rules,
      name,
    );
  }
});
