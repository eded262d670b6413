import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { secondsAgo } from '../db/expressions.ts';

export interface Seal {
  readonly upTo: bigint;
  readonly hash: string;
}

/** Part of the formula: another value changes every seal. */
const STEP = 10_000n;
/** Longer than any transaction runs: no position below a row of this age can still appear. */
const SETTLED_AFTER_SECONDS = 600;

/** Permanent columns only, so that new ones change no seal. Texts are quoted, so that different rows differ here. */
const LINES = sql`
  string_agg(concat_ws(' ', position, id, kind, state, fence, debit_account_id, credit_account_id, amount_micro_usd,
                       quote_nullable(reference), quote_nullable(characters), quote_nullable(rate_pico_usd),
                       quote_nullable(trace_id), quote_nullable((extract(epoch from created_at) * 1000000)::bigint),
                       quote_nullable((extract(epoch from ended_at) * 1000000)::bigint)),
             E'\n' order by position)`;

const MAX_POSITION = 9_223_372_036_854_775_807n;

/** The newest transfer that can be sealed: none up to it is pending, and no lower position can still appear. */
export async function newestSealable(db: Database, settledAfterSeconds = SETTLED_AFTER_SECONDS) {
  const unsettled = db
    .selectFrom('transfer')
    .select((eb) => eb.fn.min('position').as('position'))
    .where((eb) => eb.or([eb('state', '=', 'pending'), eb('created_at', '>', secondsAgo(settledAfterSeconds))]));
  const { position } = await db
    .selectFrom('transfer')
    .select((eb) => eb.fn.max<bigint | null>('position').as('position'))
    .where('position', '<', (eb) => eb.fn.coalesce(unsettled, eb.val(MAX_POSITION)))
    .executeTakeFirstOrThrow();
  return position ?? undefined;
}

export async function sealUpTo(db: Database, upTo: bigint, progress: (position: bigint) => void = () => {}) {
  let hash = createHash('sha256').update('speechgate transfers, form 2').digest();
  for (let first = 0n; first <= upTo; first += STEP) {
    const last = first + STEP - 1n < upTo ? first + STEP - 1n : upTo;
    const { hash: step } = await db
      .selectFrom('transfer')
      .select(sql<Buffer | null>`sha256(convert_to(${LINES}, 'UTF8'))`.as('hash'))
      .where((eb) => eb.between('position', first, last))
      .executeTakeFirstOrThrow();
    if (step) hash = createHash('sha256').update(hash).update(step).digest();
    progress(last);
  }
  return { upTo, hash: hash.toString('hex') };
}

/** Reads a printed seal, `<position> <hash>` or with a colon; undefined if malformed. */
export function parseSeal(text: string): Seal | undefined {
  const [, position, hash] = /^(\d{1,18})[: ]([0-9a-f]{64})$/i.exec(text.trim()) ?? [];
  return position && hash ? { upTo: BigInt(position), hash: hash.toLowerCase() } : undefined;
}
