import { sql } from 'kysely';
import type { DB } from '../../db/tables.ts';
import { lockBriefly, lockByNumber } from './brief-locks.ts';
import type { Database } from './database.ts';
import { currentUser } from './expressions.ts';

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
/** Of this release. Other tables in the schema need no rights. */
const TABLES: Readonly<Record<keyof DB, true>> = {
  account: true,
  audit_result: true,
  clawback: true,
  feedback: true,
  instance: true,
  job: true,
  job_segment: true,
  operator_action: true,
  paused_flow: true,
  prepaid_nonce: true,
  processor_list: true,
  rate_window: true,
  reconciler: true,
  top_up: true,
  transfer: true,
  x402_payee: true,
  x402_payment: true,
};
const READ_ONLY = ['schema_migration', 'schema_migration_lock'];
/** Pruning locks rows, which needs the right to update one column. A trigger rejects real updates. */
const NEVER_UPDATED = { prepaid_nonce: 'account_id' };

type Catalog = {
  'information_schema.columns': { table_schema: string; table_name: string; column_name: string; is_identity: string };
  pg_roles: { rolname: string; rolsuper: boolean };
  pg_tables: { schemaname: string; tablename: string; rowsecurity: boolean };
};

/** Grants only what the service needs: the role can neither delete or rewrite bookings nor disable their triggers. */
export async function grantApplicationRole(db: Database, role: string): Promise<boolean> {
  return db.transaction().execute(async (trx) => {
    const catalog = trx.withTables<Catalog>();
    const roles = catalog.selectFrom('pg_roles').select('rolname').where('rolname', '=', role);
    const separate = roles.where('rolname', '<>', currentUser).where('rolsuper', '=', false);
    if (!(await separate.executeTakeFirst())) return false;
    await lockByNumber(trx, GRANT_LOCK);
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
    const columns = await catalog
      .selectFrom('information_schema.columns')
      .select(['table_name as table', 'column_name as name', 'is_identity as identity'])
      .where('table_schema', '=', 'public')
      .execute();
    for (const [table, fixed] of Object.entries(KEPT)) {
      await run(`revoke update, delete on ${table} from ROLE`);
      const changing = columns.filter((column) => column.table === table && !fixed.includes(column.name));
      if (changing.length > 0) await run(`grant update (${listOf(changing)}) on ${table} to ROLE`);
    }
    for (const { table } of columns.filter(({ identity }) => identity === 'YES')) {
      await run(`revoke insert on ${table} from ROLE`);
      const chosen = columns.filter((column) => column.table === table && column.identity === 'NO');
      await run(`grant insert (${listOf(chosen)}) on ${table} to ROLE`);
    }
    // Queue entries are only hints; the tables of the service hold the state.
    await run('grant usage on schema graphile_worker to ROLE');
    await run('grant select, insert, update, delete on all tables in schema graphile_worker to ROLE');
    await run('grant usage on all sequences in schema graphile_worker to ROLE');
    const queue = catalog.selectFrom('pg_tables').select('tablename').where('schemaname', '=', 'graphile_worker');
    // Row security hides all rows from a role without a policy: the queue would look empty.
    for (const { tablename } of await queue.where('rowsecurity', '=', true).execute()) {
      await run(`drop policy if exists application on graphile_worker.${quoted(tablename)}`);
      await run(`create policy application on graphile_worker.${quoted(tablename)} to ROLE using (true)`);
    }
    return true;
  });
}

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;

const listOf = (columns: readonly { readonly name: string }[]): string =>
  columns.map(({ name }) => quoted(name)).join(', ');

type Right = 'owns' | 'select' | 'insert' | 'update' | 'isFixed' | 'delete' | 'truncate' | 'chooseId';
type TableRights = { readonly table: string } & Readonly<Record<Right, boolean>>;

export async function readRoleRights(db: Database) {
  const { role, superuser, queue } = await db
    .withTables<Catalog>()
    .selectFrom('pg_roles')
    .select(['rolname as role', 'rolsuper as superuser'])
    .select(({ fn, val }) => {
      const schema = fn('to_regnamespace', [val('graphile_worker')]);
      return fn<boolean | null>('has_schema_privilege', [schema, val('usage')]).as('queue');
    })
    .where('rolname', '=', currentUser)
    .executeTakeFirstOrThrow();
  const fixed = Object.entries(KEPT).flatMap(([table, columns]) => columns.map((column) => ({ table, column })));
  const [fixedTables, fixedColumns] = [fixed.map(({ table }) => table), fixed.map(({ column }) => column)];
  const { rows: tables } = await sql<TableRights>`
    select relname as table, pg_has_role(relowner, 'usage') as owns, has_table_privilege(oid, 'select') as select,
           has_any_column_privilege(oid, 'insert') as insert, has_any_column_privilege(oid, 'update') as update,
           not exists (select from pg_attribute where attrelid = pg_class.oid and attnum > 0 and not attisdropped
                       and (relname, attname) not in (select * from unnest(${fixedTables}::name[], ${fixedColumns}::name[])))
             as "isFixed",
           has_table_privilege(oid, 'delete') as delete, has_table_privilege(oid, 'truncate') as truncate,
           exists (select from pg_attribute where attrelid = pg_class.oid and attidentity <> ''
                   and has_column_privilege(attrelid, attnum, 'insert')) as "chooseId"
    from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') order by relname`.execute(db);
  return {
    role,
    missing: [
      ...tables.filter(({ table }) => Object.hasOwn(TABLES, table)).flatMap(missingOf),
      ...(queue ? [] : ['use the schema graphile_worker']),
    ],
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
  return [
    ...(can.select ? [] : [`select from ${table}`]),
    ...(can.insert ? [] : [`insert into ${table}`]),
    ...(can.update || can.isFixed ? [] : [`update ${table}`]),
    ...(can.delete || isKept(table) ? [] : [`delete from ${table}`]),
  ];
}

const isKept = (table: string): boolean => Object.hasOwn(KEPT, table) || READ_ONLY.includes(table);
