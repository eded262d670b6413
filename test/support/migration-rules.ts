import type { ClientBase } from 'pg';

/** Tables whose rows don't grow with use: reading or rewriting them all takes no time. */
const SMALL = [
  ...['instance', 'reconciler', 'x402_payee', 'processor_list', 'paused_flow', 'audit_result'],
  ...['schema_migration', 'schema_migration_lock'],
];

/** Changing more rows than this of a table at once keeps too many of them from requests until it is committed. */
const MOST_CHANGED = 100;

/** Modes that keep requests from writing, or from reading, too. */
const BLOCKING = ['ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'];

const TABLES = `
  select relname as name, relfilenode as file,
         coalesce(pg_stat_get_xact_numscans(oid), 0)::int as scans,
         (coalesce(pg_stat_get_xact_tuples_updated(oid), 0) + coalesce(pg_stat_get_xact_tuples_deleted(oid), 0))::int
           as changed,
         exists (select from pg_locks where pid = pg_backend_pid() and relation = oid and granted and mode = any($1))
           as blocked
  from pg_class
  where relkind = 'r' and relnamespace = 'public'::regnamespace and not relname = any($2)`;

/** Where tables are big, an index is used that is there. */
const BY_INDEX = 'set local enable_seqscan = off; set local enable_indexscan = on; set local enable_indexonlyscan = on';
/** The check of a new reference reads whole tables, whichever way it reads them. */
const READING_ALL =
  'set local enable_seqscan = on; set local enable_indexscan = off; set local enable_indexonlyscan = off';

interface Table {
  readonly name: string;
  /** Another one when it was rewritten. */
  readonly file: number;
  /** Sequential scans of this transaction, those of an index's build and of a constraint's check included. */
  readonly scans: number;
  /** Rows that this transaction has updated or deleted. */
  readonly changed: number;
  /** This transaction keeps others from it. */
  readonly blocked: boolean;
}

/**
 * Runs a migration in a transaction, and tells what in it would keep requests waiting where tables are big: a table that
 * is rewritten; one that is read wholly while it, or another one, is locked against writes; many rows that are changed.
 * Tables that the migration itself makes don't count. The transaction is left open.
 */
export async function blockingStatements(client: ClientBase, text: string): Promise<string[]> {
  const read = async (): Promise<Map<string, Table>> => {
    const { rows } = await client.query<Table>(TABLES, [BLOCKING, SMALL]);
    return new Map(rows.map((table) => [table.name, table]));
  };
  await client.query('begin');
  const first = await read();
  const faults = new Set<string>();
  let before = first;
  for (const statement of statementsOf(text)) {
    await client.query(/^(alter|create)\b/i.test(statement) ? READING_ALL : BY_INDEX);
    await client.query(statement);
    const after = await read();
    const old = [...after.values()].filter(({ name }) => first.has(name));
    const blocked = old
      .filter((table) => table.blocked)
      .map(({ name }) => name)
      .sort();
    for (const { name, file, scans, changed } of old) {
      const was = before.get(name) as Table;
      if (file !== was.file) faults.add(`rewrites ${name}`);
      else if (scans > was.scans && blocked.length > 0)
        faults.add(`reads ${name} while it locks ${blocked.join(', ')}`);
      if (changed - was.changed > MOST_CHANGED) faults.add(`changes many rows of ${name}`);
    }
    before = after;
  }
  return [...faults];
}

/** Comments, quoted text and functions' bodies as they are, in which a semicolon ends nothing. */
const PART = /--[^\n]*|'(?:[^']|'')*'|"[^"]*"|\$(\w*)\$[\s\S]*?\$\1\$|;|[\s\S]/g;

/** The statements of an SQL file. */
export function statementsOf(text: string): string[] {
  const statements: string[] = [];
  let statement = '';
  for (const [part] of text.matchAll(PART)) {
    if (part.startsWith('--')) continue;
    if (part !== ';') statement += part;
    else {
      statements.push(statement.trim());
      statement = '';
    }
  }
  return [...statements, statement.trim()].filter(Boolean);
}
