import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../../../../src/db/database.ts';

export const NETWORK = 'eip155:8453';
export const ASSET = '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913';
export const PAY_TO = `0x${'c'.repeat(40)}`;

/** Initial funding of each account: more than all its charges. */
export const FUNDING_CENTS = 500;
export const DEPOSIT_MICRO_USD = 2_000_000;
/** Rate of the default model, in 10^-12 USD per character. */
export const RATE_PICO_USD = 18_000_000;

/** Ids of card accounts, and wallet addresses in lower case. */
export interface Known {
  readonly cards: readonly string[];
  readonly wallets: readonly string[];
}

/**
 * Creates SQL functions that map a number to an account's name, so that statements need no table of names.
 * @param known names that callers use. They replace generated names, spread over all accounts.
 */
export async function createNames(db: Database, known: Known, countOfEach: number): Promise<void> {
  await dropNames(db);
  await sql`create schema growth`.execute(db);
  for (const kind of ['card', 'wallet'] as const) {
    const table = sql.id('growth', `known_${kind}`);
    await sql`create table ${table} (number bigint primary key, name text not null)`.execute(db);
    await sql`
      insert into ${table}
      select 1 + (place - 1) * ${countOfEach}::bigint / ${known[`${kind}s`].length}::bigint, name
      from unnest(${known[`${kind}s`]}::text[]) with ordinality known (name, place)`.execute(db);
  }
  for (const [name, type, body] of FUNCTIONS) {
    await sql`
      create function growth.${sql.ref(name)}(number bigint) returns ${sql.raw(type)} stable language sql
      return ${sql.raw(body)}`.execute(db);
  }
}

export const dropNames = (db: Database) => sql`drop schema if exists growth cascade`.execute(db);

const FUNCTIONS = [
  [
    'card',
    'uuid',
    `coalesce((select known.name from growth.known_card known where known.number = card.number),
              md5('card ' || number))::uuid`,
  ],
  ['wallet', 'uuid', `md5('wallet ' || number)::uuid`],
  ['word', 'text', `'0x' || encode(sha256(convert_to(number::text, 'UTF8')), 'hex')`],
  [
    'address',
    'text',
    `coalesce((select known.name from growth.known_wallet known where known.number = address.number),
              '0x' || left(encode(sha256(convert_to('address ' || number, 'UTF8')), 'hex'), 40))`,
  ],
] as const;

/** Maps n to a number from 1 to `count`, evenly distributed. */
export const anyOf = (count: number, n: RawBuilder<unknown>) => sql`(1 + ${n} * 2654435761 % ${sql.lit(count)})`;
