import { type Kysely, sql, type Transaction } from 'kysely';
import { lockBriefly } from './brief-locks.ts';

const GRANT_LOCK = 7_300_010;

/** Tables whose rows are never deleted, with the columns that are never updated. Other tables may change freely. */
const KEPT: Readonly<Record<string, readonly string[]>> = {
  transfer: [
    ...[
      'id',
      'position',
      'kind',
      'debit_account_id',
      'credit_account_id',
      'amount_micro_usd',
      'reference',
      'created_at',
    ],
    ...['characters', 'rate_pico_usd', 'trace_id', 'model'],
  ],
  account: ['id', 'kind', 'contra_name', 'address', 'owner_id', 'created_at'],
  job: ['id', 'account_id', 'hold_id', 'trace_id'],
  processor_list: ['name'],
  clawback: ['id', 'kind', 'top_up_id', 'account_id', 'charge_id', 'amount_cents', 'currency', 'created_at'],
  instance: ['singleton', 'id'],
  operator_action: [
    ...['id', 'at', 'operator', 'action', 'subject', 'reason', 'key', 'transfer_id', 'detail', 'database_user'],
  ],
};
const READ_ONLY = ['schema_migration', 'schema_migration_lock'];
/** Pruning locks rows, which needs the right to update one column. A trigger rejects real updates. */
const NEVER_UPDATED = { prepaid_nonce: 'account_id' };

/** Grants only what the service needs: the role can neither delete or rewrite bookings nor disable their triggers. */
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
    // Queue entries are only hints; the tables of the service hold the state.
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

/** Row security hides all rows from a role without a policy: the queue would look empty. */
async function rowSecuredTables<T>(trx: Transaction<T>): Promise<string[]> {
  const { rows } = await sql<{ name: string }>`
    select oid::regclass::text as name from pg_class
    where relrowsecurity and relnamespace = 'graphile_worker'::regnamespace order by 1`.execute(trx);
  return rows.map(({ name }) => name);
}

async function tablesWithOwnIds<T>(trx: Transaction<T>): Promise<string[]> {
  const { rows } = await sql<{ name: string }>`
    select relname as name from pg_attribute join pg_class on pg_class.oid = attrelid
    where attidentity <> '' and relnamespace = 'public'::regnamespace
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

type Right = 'owns' | 'select' | 'insert' | 'update' | 'delete' | 'truncate' | 'chooseId';
type TableRights = { readonly table: string } & Readonly<Record<Right, boolean>>;

export async function readRoleRights<T>(db: Kysely<T>) {
  const { rows: roles } = await sql<{ role: string; superuser: boolean; queue: boolean }>`
    select rolname as role, rolsuper as superuser,
           coalesce(has_schema_privilege(to_regnamespace('graphile_worker'), 'usage'), false) as queue
    from pg_roles where rolname = current_user`.execute(db);
  const { rows: tables } = await sql<TableRights>`
    select relname as table, pg_has_role(relowner, 'usage') as owns, has_table_privilege(oid, 'select') as select,
           has_any_column_privilege(oid, 'insert') as insert, has_any_column_privilege(oid, 'update') as update,
           has_table_privilege(oid, 'delete') as delete, has_table_privilege(oid, 'truncate') as truncate,
           exists (select from pg_attribute where attrelid = pg_class.oid and attidentity <> ''
                   and has_column_privilege(attrelid, attnum, 'insert')) as "chooseId"
    from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') order by relname`.execute(db);
  const { role = '', superuser = false, queue = false } = roles[0] ?? {};
  return {
    role,
    missing: [...tables.flatMap(missingOf), ...(queue ? [] : ['use the schema graphile_worker'])],
    /** A table's owner can disable its triggers. */
    mayDropGuards: superuser || tables.some(({ owns }) => owns),
    excess: tables.flatMap((rights) => [
      ...(rights.delete && isKept(rights.table) ? [`delete from ${rights.table}`] : []),
      ...(rights.truncate ? [`truncate ${rights.table}`] : []),
      ...(rights.chooseId ? [`choose ids in ${rights.table}`] : []),
    ]),
  };
}

function missingOf({ table, ...can }: TableRights): string[] {
  const isReadOnly = READ_ONLY.includes(table);
  return [
    ...(can.select ? [] : [`select from ${table}`]),
    ...(can.insert || isReadOnly ? [] : [`insert into ${table}`]),
    ...(can.update || isReadOnly || isKept(table) ? [] : [`update ${table}`]),
    ...(can.delete || isReadOnly || isKept(table) ? [] : [`delete from ${table}`]),
  ];
}

const isKept = (table: string): boolean => Object.hasOwn(KEPT, table) || READ_ONLY.includes(table);
