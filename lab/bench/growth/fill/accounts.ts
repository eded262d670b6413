import { sql } from 'kysely';
import type { Database } from '../../../../src/db/database.ts';
import { inChunks, numbers, type Progress } from './chunks.ts';
import type { FillSizes } from './sizes.ts';

/** Each account gets the balance that results from its transfers. */
export async function fillAccounts(db: Database, { accounts, days }: FillSizes, progress: Progress): Promise<void> {
  await db.connection().execute(async (session) => {
    await sql`set work_mem = '256MB'`.execute(session);
    await sql`
      create table growth.balance as
      select account_id, sum(amount)::bigint as amount from (
        select credit_account_id as account_id, amount_micro_usd as amount from transfer where state = 'posted'
        union all
        select debit_account_id, -amount_micro_usd from transfer where state <> 'voided'
      ) movement group by account_id`.execute(session);
    await sql`reset work_mem`.execute(session);
  });
  await sql`alter table growth.balance add primary key (account_id)`.execute(db);
  await sql`analyze growth.balance`.execute(db);
  const count = accounts / 2;
  const createdAt = sql`now() - make_interval(days => ${days}::int)`;
  await inChunks(
    db,
    { what: 'card accounts', count },
    (from, to) => sql`
      insert into account (id, kind, livemode, balance_micro_usd, created_at)
      select growth.card(n), 'card', false, amount, ${createdAt}
      from ${numbers(from, to)} join growth.balance on account_id = growth.card(n)`,
    progress,
  );
  await inChunks(
    db,
    { what: 'wallets', count },
    (from, to) => sql`
      insert into account (id, kind, address, balance_micro_usd, created_at)
      select growth.wallet(n), 'wallet', growth.address(n), amount, ${createdAt}
      from ${numbers(from, to)} join growth.balance on account_id = growth.wallet(n)`,
    progress,
  );
}
