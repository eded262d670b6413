import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** What all transfers up to one of them were when it was taken. Kept elsewhere, it shows any later change of them. */
export interface Seal {
  /** Id of the last transfer that it covers. */
  readonly upTo: bigint;
  /** In hexadecimal. */
  readonly hash: string;
}

/** Ids that one step reads, at most; it is part of the formula. */
const STEP = 10_000n;
/** No statement or transaction of the service runs as long: what is older has no lower number that is still to come. */
const SETTLED_AFTER_SECONDS = 600;

/**
 * The transfers that one step covers, each as one line of its lasting columns; columns of later releases change nothing.
 * A text is quoted, so that no two rows give the same line.
 */
const LINES = sql`
  string_agg(concat_ws(' ', id, kind, state, fence, debit_account_id, credit_account_id, amount_micro_usd,
                       quote_nullable(reference), quote_nullable(characters), quote_nullable(rate_pico_usd),
                       quote_nullable(trace_id), quote_nullable((extract(epoch from created_at) * 1000000)::bigint),
                       quote_nullable((extract(epoch from ended_at) * 1000000)::bigint)),
             E'\n' order by id)`;

/**
 * The newest transfer that can be sealed: neither itself nor an earlier one is pending, or could still appear.
 * Undefined when there is none.
 */
export async function newestSealable(
  db: Database,
  settledAfterSeconds = SETTLED_AFTER_SECONDS,
): Promise<bigint | undefined> {
  const { rows } = await sql<{ id: bigint | null }>`
    select max(id) as id from transfer
    where id < coalesce((select min(id) from transfer
                         where state = 'pending'
                            or created_at > now() - make_interval(secs => ${settledAfterSeconds}::double precision)),
                        9223372036854775807)`.execute(db);
  return rows[0]?.id ?? undefined;
}

/**
 * The seal of all transfers up to this id: SHA-256 over the former step's hash and that of the step's lines, step after
 * step, so that millions of transfers take little memory. Only reads.
 * @param progress told the id that each step has come to
 */
export async function sealUpTo(db: Database, upTo: bigint, progress: (id: bigint) => void = () => {}): Promise<Seal> {
  let hash = createHash('sha256').update('speechgate transfers, form 1').digest();
  for (let from = 0n; ; ) {
    const { rows } = await sql<{ next: bigint | null }>`
      select min(id) as next from transfer where id between ${from}::bigint and ${upTo}::bigint`.execute(db);
    const next = rows[0]?.next ?? undefined;
    if (next === undefined) return { upTo, hash: hash.toString('hex') };
    const first = next - (next % STEP);
    const last = first + STEP - 1n < upTo ? first + STEP - 1n : upTo;
    const step = await sql<{ hash: Buffer }>`
      select sha256(convert_to(${LINES}, 'UTF8')) as hash from transfer
      where id between ${first}::bigint and ${last}::bigint`.execute(db);
    hash = createHash('sha256')
      .update(hash)
      .update(step.rows[0]?.hash ?? '')
      .digest();
    progress(last);
    from = last + 1n;
  }
}

/** Reads a seal as it is printed, `<id> <hash>` or with a colon; undefined when it is none. */
export function parseSeal(text: string): Seal | undefined {
  const [, id, hash] = /^(\d{1,18})[: ]([0-9a-f]{64})$/i.exec(text.trim()) ?? [];
  return id && hash ? { upTo: BigInt(id), hash: hash.toLowerCase() } : undefined;
}
