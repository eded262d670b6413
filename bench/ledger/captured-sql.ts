import { Kysely, PostgresDialect } from 'kysely';
import type { DB } from '../../db/tables.ts';
import { type Database, openPool } from '../../src/db/database.ts';
import { captureHolds, type Hold, voidHold } from '../../src/ledger/hold.ts';
import { accountId } from '../world.ts';
import { askedOf, placeHolds, UPSTREAM } from './debit.ts';

interface Captured {
  readonly sql: string;
  readonly parameters: readonly unknown[];
}

/** A pgbench script, and the values of its variables. */
export interface Script {
  readonly text: string;
  readonly variables: Readonly<Record<string, string>>;
}

/** Nothing else among the parameters looks like these. */
const NO_HOLD = { id: 4_242_424_242_424n, fence: 4_242 };

/**
 * The statements of a card request as pgbench scripts, one for each of the first accounts: what the ledger's functions
 * send, as they have just sent it.
 */
export async function debitScripts(databaseUrl: string, accounts: number): Promise<Script[]> {
  const log: Captured[] = [];
  const pool = openPool(databaseUrl, { maxConnections: 1 });
  const db: Database = new Kysely<DB>({
    dialect: new PostgresDialect({ pool }),
    log: ({ query: { sql, parameters } }) => {
      log.push({ sql, parameters });
    },
  });
  try {
    const [hold] = await placeHolds(db, [askedOf(0)], 'wait');
    await captureHolds(db, [{ ...NO_HOLD, upstream: UPSTREAM }]);
    const [placing, capturing] = log;
    if (!placing || !capturing) throw new Error('the ledger has sent no statements');
    await voidHold(db, hold as Hold);
    return Array.from({ length: accounts }, (_, account) => scriptOf(placing, capturing, account));
  } finally {
    await db.destroy();
  }
}

/** The hold's columns become variables of the script, for its capture. */
function scriptOf(placing: Captured, capturing: Captured, account: number): Script {
  const variables: Record<string, string> = {};
  const place = withVariables(placing, (value, index) => {
    if (value === null) return 'null';
    const name = `p${index}_${account}`;
    variables[name] = textOf(value).replace(accountId(0), accountId(account));
    return `:${name}`;
  });
  const capture = withVariables(capturing, (value) => {
    if (textOf(value) === textOf([NO_HOLD.id])) return 'array[:hold_id]';
    if (textOf(value) === textOf([NO_HOLD.fence])) return 'array[:fence]';
    if (textOf(value) === textOf([UPSTREAM.name])) return `array['${UPSTREAM.name}']`;
    if (textOf(value) === textOf([UPSTREAM.costPicoUsd])) return `array[${UPSTREAM.costPicoUsd}]`;
    throw new Error('a capture has a parameter that is not known');
  });
  return { text: `${place}\\gset\n${capture};\n`, variables };
}

const withVariables = ({ sql, parameters }: Captured, name: (value: unknown, index: number) => string): string =>
  sql.replace(/\$(\d+)/g, (_, number) => name(parameters[Number(number) - 1], Number(number)));

/** As PostgreSQL reads it. */
function textOf(value: unknown): string {
  if (!Array.isArray(value)) return String(value);
  const items = value.map((item) => (Buffer.isBuffer(item) ? `\\\\x${item.toString('hex')}` : String(item ?? 'null')));
  return `{${items.join()}}`;
}
