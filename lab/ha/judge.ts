import { sql } from 'kysely';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { untilNothingIsOpen } from '../../test/support/open-things.ts';
import type { Attempt } from './ask.ts';
import type { Payer } from './flows.ts';

/** A difference between confirmed responses and the books. */
export type Contradiction = string;

export interface Told {
  readonly cards: readonly Payer[];
  readonly prepaid: readonly Payer[];
  readonly direct: readonly Payer[];
  readonly depositors: readonly Payer[];
  /** Accounts whose page confirmed the credit. */
  readonly credited: readonly string[];
  readonly attempts: readonly Attempt[];
}

/** Period whose commits may be lost, by the monotonic clock. */
export interface Loss {
  readonly at: number;
  readonly until: number;
}

/**
 * Waits until the reconcilers have finished all open work, then compares.
 * @param losses charges to balances in these periods may be missing: neither processor nor chain knows them
 */
export async function judge(databaseUrl: string, told: Told, losses: readonly Loss[] = []): Promise<Contradiction[]> {
  await untilNothingIsOpen(databaseUrl);
  const db = openDatabase(databaseUrl, { maxConnections: 2 });
  try {
    return [
      ...(await comparePayers(db, told, losses.length > 0)),
      ...(await comparePurchases(db, told.credited)),
      ...(await compareTraces(db, told.attempts, losses)),
    ];
  } finally {
    await db.destroy();
  }
}

async function comparePayers(
  db: Database,
  { cards, prepaid, direct, depositors }: Told,
  isLossy: boolean,
): Promise<Contradiction[]> {
  // Spent from balances. Below: paid in USDC for speech and for deposits.
  const spent = await sumsBy(
    db,
    sql`
    select coalesce(account.address, account.id::text) as payer, sum(amount_micro_usd) as sum
    from transfer join account on account.id = debit_account_id
    where transfer.kind in ('charge', 'spend') and state = 'posted'
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
      // Missing charges are checked one by one in `compareTraces`.
      const mayMiss = isLossy && (flow === 'card' || flow === 'prepaid');
      const isTold = (mayMiss || sum >= told) && sum <= told + doubts;
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

/** Compares by trace id. A complete response is charged, unless its commit was lost. An error is not charged. */
async function compareTraces(
  db: Database,
  attempts: readonly Attempt[],
  losses: readonly Loss[],
): Promise<Contradiction[]> {
  const wasLost = ({ at, ms }: Attempt) => losses.some((loss) => at + ms >= loss.at && at <= loss.until);
  const { rows } = await sql<{ trace: string }>`
    select trace_id as trace from transfer
    where kind in ('charge', 'spend') and state = 'posted' and trace_id is not null`.execute(db);
  const charged = new Set(rows.map(({ trace }) => trace));
  return attempts
    .filter(({ flow }) => /^(card|prepaid$)/.test(flow))
    .flatMap((attempt) => {
      const { flow, status, traceId, code } = attempt;
      if (traceId === undefined || (status === 200) === charged.has(traceId)) return [];
      if (status === 200 && wasLost(attempt)) return [];
      return [
        `${flow}: an answer ${status} ${code ?? ''} was ${status === 200 ? 'not charged' : 'charged'}, trace ${traceId}`,
      ];
    });
}
