import { type Kysely, sql } from 'kysely';
import { IDS_DRAWN_BEFORE, KEPT, READ_ONLY } from './application-role.ts';

/** How the rights of the connected role differ from those that `grantApplicationRole` gives. */
export interface RoleRights {
  readonly role: string;
  /** What the service needs and the role can't do, such as `select from job`. */
  readonly missing: readonly string[];
  /** True when the role could switch off what guards the books: it owns tables, or nothing is kept from it. */
  readonly mayDropGuards: boolean;
  /** What the service never does and the role could, such as `delete from job`. */
  readonly excess: readonly string[];
}

interface TableRights {
  readonly table: string;
  readonly owns: boolean;
  readonly select: boolean;
  readonly insert: boolean;
  readonly update: boolean;
  readonly delete: boolean;
  readonly truncate: boolean;
  /** It could choose an id that the database gives. */
  readonly chooseId: boolean;
}

/** Compares the rights of the role that is connected, table by table. It tries nothing out. */
export async function readRoleRights<T>(db: Kysely<T>): Promise<RoleRights> {
  const { rows: roles } = await sql<{ role: string; superuser: boolean; queue: boolean; ids: boolean }>`
    select rolname as role, rolsuper as superuser,
           coalesce(has_sequence_privilege(to_regclass('transfer_id_seq'), 'usage'), false) as ids,
           coalesce(has_schema_privilege(to_regnamespace('graphile_worker'), 'usage'), false) as queue
    from pg_roles where rolname = current_user`.execute(db);
  const { rows: tables } = await sql<TableRights>`
    select relname as table, pg_has_role(relowner, 'usage') as owns, has_table_privilege(oid, 'select') as select,
           has_any_column_privilege(oid, 'insert') as insert, has_any_column_privilege(oid, 'update') as update,
           has_table_privilege(oid, 'delete') as delete, has_table_privilege(oid, 'truncate') as truncate,
           exists (select from pg_attribute where attrelid = pg_class.oid and attidentity <> ''
                   and has_column_privilege(attrelid, attnum, 'insert')) as "chooseId"
    from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') order by relname`.execute(db);
  const { role = '', superuser = false, queue = false, ids = false } = roles[0] ?? {};
  return {
    role,
    missing: [
      ...tables.flatMap(missingOf),
      ...(ids ? [] : ['use the sequence transfer_id_seq']),
      ...(queue ? [] : ['use the schema graphile_worker']),
    ],
    mayDropGuards: superuser || tables.some(({ owns }) => owns),
    excess: tables.flatMap((rights) => [
      ...(rights.delete && isKept(rights.table) ? [`delete from ${rights.table}`] : []),
      ...(rights.truncate ? [`truncate ${rights.table}`] : []),
      ...(rights.chooseId && rights.table !== IDS_DRAWN_BEFORE ? [`choose ids in ${rights.table}`] : []),
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
