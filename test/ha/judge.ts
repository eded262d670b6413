import { sql } from 'kysely';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { untilNothingIsOpen } from '../support/open-things.ts';
import type { Attempt } from './ask.ts';
import type { Payer } from './flows.ts';

/** Where what callers were told and what the books have differ; empty when they agree. */
export type Contradiction = string;

/** Whose charges, deposits and purchases are held against the books, each as he was told. */
export interface Told {
  readonly cards: readonly Payer[];
  readonly prepaid: readonly Payer[];
  readonly direct: readonly Payer[];
  readonly depositors: readonly Payer[];
  /** Accounts of purchases whose page has said that they are credited. */
  readonly credited: readonly string[];
  readonly attempts: readonly Attempt[];
}

/** Waits until the reconcilers have ended all that the faults have left open, and then compares. */
export async function judge(databaseUrl: string, told: Told): Promise<Contradiction[]> {
  await untilNothingIsOpen(databaseUrl);
  const db = openDatabase(databaseUrl, { maxConnections: 2 });
  try {
    return [
      ...(await comparePayers(db, told)),
      ...(await comparePurchases(db, told.credited)),
      ...(await compareTraces(db, told.attempts)),
    ];
  } finally {
    await db.destroy();
  }
}

async function comparePayers(db: Database, { cards, prepaid, direct, depositors }: Told): Promise<Contradiction[]> {
  // What was spent and not given back; what was paid in USDC for speech, and for deposits.
  const spent = await sumsBy(
    db,
    sql`
    select coalesce(account.address, account.id::text) as payer, sum(amount_micro_usd) as sum
    from transfer join account on account.id = debit_account_id
    where transfer.kind in ('charge', 'spend') and state = 'posted'
      and not exists (select from reversal where transfer_id = transfer.id)
    group by 1`,
  );
  const paid = (purpose: string) =>
    sumsBy(
      db,
      sql`
    select payer, sum(amount_micro_usd) as sum from x402_payment
    where state = 'settled' and purpose = ${purpose} group by 1`,
    );
  const compared: [string, Map<string, bigint>, readonly Payer[]][] = [
    ['card', spent, cards],
    ['prepaid', spent, prepaid],
    ['direct', await paid('speech'), direct],
    ['deposit', await paid('deposit'), depositors],
  ];
  return compared.flatMap(([flow, booked, payers]) =>
    payers.flatMap(({ id, told, doubts }) => {
      const sum = booked.get(id) ?? 0n;
      const isTold = sum >= told && sum <= told + doubts;
      return isTold
        ? []
        : [`${flow}: a payer was told ${told} micro-USD (and ${doubts} in doubt), and the books have ${sum}`];
    }),
  );
}

async function sumsBy(db: Database, query: ReturnType<typeof sql>): Promise<Map<string, bigint>> {
  const { rows } = await query.execute(db);
  return new Map((rows as { payer: string; sum: string | bigint }[]).map(({ payer, sum }) => [payer, BigInt(sum)]));
}

async function comparePurchases(db: Database, credited: readonly string[]): Promise<Contradiction[]> {
  const { rows } = await sql<{ id: string }>`
    select credit_account_id as id from transfer where kind = 'top_up' and credit_account_id = any(${credited}::uuid[])`.execute(
    db,
  );
  const booked = new Map<string, number>();
  for (const { id } of rows) booked.set(id, (booked.get(id) ?? 0) + 1);
  return credited.flatMap((id) =>
    booked.get(id) === 1 ? [] : [`a purchase that was told is booked ${booked.get(id) ?? 0} times`],
  );
}

/** Each answer by its trace id: one that is complete is charged, an error is not, or was given back. */
async function compareTraces(db: Database, attempts: readonly Attempt[]): Promise<Contradiction[]> {
  const { rows } = await sql<{ trace: string }>`
    select trace_id as trace from transfer
    where kind in ('charge', 'spend') and state = 'posted' and trace_id is not null
      and not exists (select from reversal where transfer_id = transfer.id)`.execute(db);
  const charged = new Set(rows.map(({ trace }) => trace));
  return attempts
    .filter(({ flow }) => /^(card|prepaid$)/.test(flow))
    .flatMap(({ flow, status, traceId, code }) => {
      if (traceId === undefined || (status === 200) === charged.has(traceId)) return [];
      return [
        `${flow}: an answer ${status} ${code ?? ''} was ${status === 200 ? 'not charged' : 'charged'}, trace ${traceId}`,
      ];
    });
}
