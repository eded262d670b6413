import { type Kysely, sql, type Transaction } from 'kysely';
import { lockBriefly } from './brief-locks.ts';

/** Any number that nothing else in this database locks. */
const GRANT_LOCK = 7_300_010;

/** Tables of which no row is ever deleted, and the columns that an update may not name; of others, all may change. */
export const KEPT: Readonly<Record<string, readonly string[]>> = {
  transfer: [
    ...['id', 'kind', 'debit_account_id', 'credit_account_id', 'amount_micro_usd', 'reference', 'created_at'],
    ...['characters', 'rate_pico_usd', 'trace_id'],
  ],
  account: ['id', 'kind', 'contra_name', 'address', 'owner_id', 'created_at'],
  job: ['id', 'account_id', 'hold_id', 'trace_id'],
  checkout_sweep: ['singleton'],
  processor_list: ['name'],
  clawback: ['id', 'kind', 'top_up_id', 'account_id', 'charge_id', 'amount_cents', 'currency', 'created_at'],
  instance: ['singleton', 'id'],
  reversal: ['transfer_id', 'reason', 'created_at'],
  operator_action: [
    ...['id', 'at', 'operator', 'action', 'subject', 'reason', 'key', 'transfer_id', 'detail', 'database_user'],
  ],
};
/** The table whose ids are drawn before its rows are made: a trigger refuses any other id. */
export const IDS_DRAWN_BEFORE = 'transfer';
/** Tables that the service only reads. */
export const READ_ONLY = ['schema_migration', 'schema_migration_lock'];
/**
 * Tables of which no row ever changes. Pruning locks rows, for which a role has to have a right to update: one column's,
 * and the guard of the books refuses its change.
 */
const NEVER_UPDATED = { prepaid_nonce: 'account_id' };

/**
 * Gives the role what the service needs of a database that the present user owns, and no more: it can neither delete
 * nor rewrite what was booked, nor switch off what guards it. False when there is no such role, or it is the owner.
 */
export async function grantApplicationRole<T>(db: Kysely<T>, role: string): Promise<boolean> {
  return db.transaction().execute(async (trx) => {
    const { rows } = await sql<{ separate: boolean }>`
      select rolname <> current_user and not rolsuper as separate from pg_roles where rolname = ${role}`.execute(trx);
    if (!rows[0]?.separate) return false;
    await sql`select pg_advisory_xact_lock(${GRANT_LOCK})`.execute(trx);
    await lockBriefly(trx);
    const run = (statement: string) => sql.raw(statement.replaceAll('ROLE', quoted(role))).execute(trx);
    await run('revoke all on all tables in schema public from ROLE');
    await run('grant usage on schema public to ROLE');
    await run('grant select, insert, update, delete on all tables in schema public to ROLE');
    for (const table of READ_ONLY) await run(`revoke insert, update, delete on ${table} from ROLE`);
    for (const [table, locked] of Object.entries(NEVER_UPDATED)) {
      await run(`revoke update on ${table} from ROLE`);
      await run(`grant update (${quoted(locked)}) on ${table} to ROLE`);
    }
    for (const [table, fixed] of Object.entries(KEPT)) {
      await run(`revoke update, delete on ${table} from ROLE`);
      const columns = (await columnsOf(trx, table)).filter((column) => !fixed.includes(column));
      if (columns.length > 0) await run(`grant update (${columns.map(quoted).join(', ')}) on ${table} to ROLE`);
    }
    for (const table of await tablesWithOwnIds(trx)) {
      await run(`revoke insert on ${table} from ROLE`);
      const columns = await columnsOf(trx, table, 'without ids');
      await run(`grant insert (${columns.map(quoted).join(', ')}) on ${table} to ROLE`);
    }
    // Prepaid nonces name the debit that is made for them, whose id is drawn before.
    await run('grant usage on sequence transfer_id_seq to ROLE');
    // The queue is no book: its entries only say that somebody should look.
    await run('grant usage on schema graphile_worker to ROLE');
    await run('grant select, insert, update, delete on all tables in schema graphile_worker to ROLE');
    await run('grant usage on all sequences in schema graphile_worker to ROLE');
    for (const table of await rowSecuredTables(trx)) {
      await run(`drop policy if exists application on ${table}`);
      await run(`create policy application on ${table} to ROLE using (true)`);
    }
    return true;
  });
}

/** Tables of the queue that show no rows to a role without a policy. */
async function rowSecuredTables<T>(trx: Transaction<T>): Promise<string[]> {
  const { rows } = await sql<{ name: string }>`
    select oid::regclass::text as name from pg_class
    where relrowsecurity and relnamespace = 'graphile_worker'::regnamespace order by 1`.execute(trx);
  return rows.map(({ name }) => name);
}

/** Tables whose ids only the database gives. */
async function tablesWithOwnIds<T>(trx: Transaction<T>): Promise<string[]> {
  const { rows } = await sql<{ name: string }>`
    select relname as name from pg_attribute join pg_class on pg_class.oid = attrelid
    where attidentity <> '' and relnamespace = 'public'::regnamespace and relname <> ${IDS_DRAWN_BEFORE}
    order by 1`.execute(trx);
  return rows.map(({ name }) => name);
}

async function columnsOf<T>(trx: Transaction<T>, table: string, ids?: 'without ids'): Promise<string[]> {
  const { rows } = await sql<{ name: string }>`
    select attname as name from pg_attribute
    where attrelid = ${table}::regclass and attnum > 0 and not attisdropped
      and (${ids === undefined} or attidentity = '') order by attnum`.execute(trx);
  return rows.map(({ name }) => name);
}

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;
