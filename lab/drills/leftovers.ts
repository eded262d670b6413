import { randomUUID } from 'node:crypto';
import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../../src/db/database.ts';
import { claimJob } from '../../src/jobs/claim-job.ts';
import { findCardAccount } from '../../src/ledger/accounts.ts';
import { applyClawback, lockAccount } from '../../src/ledger/debts.ts';
import { voidHold } from '../../src/ledger/hold.ts';
import { holdOnCard } from '../../test/support/holds.ts';

/** How many of each are left. */
const LEFT = 120;
/** Of these so many that sorting them for the first one costs more than an index. */
const MANY = 2000;
const PRICE = 198n;
const usage = () => ({ model: 'provider-a/tts-1', characters: 11, ratePicoUsd: 18_000_000n, traceId: randomUUID() });

/** What dead processes and absent buyers have left in a filled ledger for one reconciler, and what that has to write. */
export interface Leftover {
  /** Of tables, as `Update transfer`. */
  readonly writes: readonly string[];
  leave(db: Database, cards: readonly string[]): Promise<void>;
}

const run =
  (...statements: RawBuilder<unknown>[]) =>
  async (db: Database) => {
    for (const statement of statements) await statement.execute(db);
  };

/** Has a cent of the account's purchase refunded while all that it has is held, so that the refund becomes a debt. */
async function leaveDebt(db: Database, card: string): Promise<void> {
  const balance = (await findCardAccount(db, card))?.balanceMicroUsd ?? 0n;
  const all = { ...usage(), characters: Number(balance), ratePicoUsd: 1_000_000n };
  const placed = await holdOnCard(db, card, balance, 60, { usage: all });
  if (placed.outcome !== 'placed') throw new Error(`the account holds nothing: ${placed.outcome}`);
  await db.transaction().execute(async (trx) => {
    await lockAccount(trx, card);
    await sql`
      insert into clawback (id, kind, top_up_id, account_id, amount_cents, status, state, turns, created_at)
      select 're_debt' || id, 'refund', id, account_id, 1, 'succeeded', 'taken', 1, now()
      from top_up where account_id = ${card} and state = 'credited' limit 1`.execute(trx);
    const { rows } = await sql<{
      id: string;
    }>`select id from clawback where account_id = ${card} and state = 'taken'`.execute(trx);
    await applyClawback(trx, 'refund', { accountId: card, amountMicroUsd: 10_000n, reference: rows[0]?.id ?? '' });
  });
  await voidHold(db, placed.hold);
}

/** By the reconciler's name. */
export const LEFTOVERS: Readonly<Record<string, Leftover>> = {
  expired_holds: {
    writes: ['Update transfer', 'Update account'],
    leave: async (db, cards) => {
      for (const card of cards.slice(0, LEFT)) await holdOnCard(db, card, PRICE, -10, { usage: usage() });
    },
  },
  debts: {
    writes: ['Insert transfer', 'Update account'],
    leave: async (db, cards) => {
      for (const card of cards.slice(0, LEFT)) await leaveDebt(db, card);
    },
  },
  lost_jobs: {
    writes: ['Update job'],
    leave: async (db) => {
      const { rows } = await sql<{ id: string }>`
        update job set run_at = now() - interval '1 hour', turn = 1
        where id in (select id from job where state = 'queued' limit ${2 * LEFT}) returning id`.execute(db);
      for (const { id } of rows.slice(LEFT)) await claimJob(db, id);
    },
  },
  expired_audio: {
    writes: ['Update job'],
    leave: run(
      sql`
      update job set audio_deleted = false
      where id in (select id from job where audio_deleted and audio_expires_at < now() limit ${LEFT})`,
      sql`
      insert into job_segment (job_id, number, characters)
      select id, number, 100 from job, generate_series(0, 4) number where state = 'completed' limit ${MANY}`,
    ),
  },
  top_ups: {
    writes: ['Update top_up'],
    leave: run(
      sql`
      update top_up set next_check_at = now() - interval '1 second', created_at = now() - interval '2 days'
      where id in (select id from top_up where state = 'open' limit ${LEFT})`,
      sql`
      insert into top_up (state, account_id, amount_cents, created_at)
      select 'opening', gen_random_uuid(), 500, now() - interval '2 days' from generate_series(1, ${LEFT})`,
    ),
  },
  checkout_sweep: { writes: ['Update processor_list'], leave: run() },
  clawback_sweep: {
    writes: ['Update processor_list'],
    leave: run(sql`
      insert into clawback (id, kind, top_up_id, account_id, amount_cents, status, created_at)
      select 're_' || id, 'refund', id, account_id, 1, 'requires_action', now() - interval '1 day'
      from top_up where state = 'credited' limit ${MANY}`),
  },
  clawbacks: {
    writes: ['Update clawback'],
    leave: run(sql`
      update clawback set next_check_at = now() - interval '1 minute'
      where id in (select id from clawback where status = 'requires_action' limit ${LEFT})`),
  },
  unpaid_purchases: {
    writes: ['Delete top_up'],
    leave: run(sql`
      insert into top_up (state, account_id, amount_cents, created_at)
      select 'expired', gen_random_uuid(), 500, now() - interval '22 days' from generate_series(1, ${LEFT})`),
  },
  old_feedback: {
    writes: ['Delete feedback'],
    leave: run(sql`
      update feedback set received_at = now() - interval '400 days'
      where id in (select id from feedback where mailed_at is not null order by received_at desc limit ${LEFT})`),
  },
  lost_mail: {
    writes: [],
    leave: run(sql`
      update feedback set mailed_at = null
      where id in (select id from feedback where mailed_at is not null order by received_at desc limit ${LEFT})`),
  },
  abandoned_payments: { writes: ['Update x402_payment', 'Delete x402_payment'], leave: run(payments('reserved')) },
  doubtful_payments: { writes: ['Update x402_payment'], leave: run(payments('unknown', MANY)) },
  failed_payments: {
    writes: ['Update x402_payment'],
    leave: run(sql`
      update x402_payment set next_look_at = now() - interval '1 hour', head_block = 0
      where id in (select id from x402_payment where state = 'failed' limit ${LEFT})`),
  },
};

/** Payments whose process is gone, of payers who have others. */
function payments(state: 'reserved' | 'unknown', count = LEFT): RawBuilder<unknown> {
  return sql`
    insert into x402_payment (state, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                              valid_before, head_block, lease_until, settling_at)
    select ${state}, gen_random_uuid()::text, '', network, asset, payer, '0x' || encode(sha256(uuid_send(gen_random_uuid())), 'hex'), pay_to, 198, 1, 0,
           case ${state} when 'reserved' then now() - interval '1 minute' end, case ${state} when 'unknown' then now() end
    from x402_payment where state = 'settled' limit ${count}`;
}
