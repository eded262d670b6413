import { sql } from 'kysely';
import type Stripe from 'stripe';
import type { Database } from '../db/database.ts';
import { findInstanceId } from '../ledger/instance.ts';
import { eachOf } from '../lib/each-of.ts';
import { isUuid } from '../lib/uuid.ts';
import type { Processor } from '../top-up/processor.ts';
import { ProcessorError } from '../top-up/processor-call.ts';
import { Findings, type OutsideAudit, type Progress } from './outside.ts';

const CREDITED_IS_PAID = 'a credited purchase is a paid session of that amount for that account at the processor';
const PAID_IS_CREDITED = 'a paid session of this instance is a credited purchase, or is on its way to be';
export const PURCHASE_RULES = [CREDITED_IS_PAID, PAID_IS_CREDITED];

/** Sessions that are asked for at a time. */
const CONCURRENCY = 4;
/** Purchases that are read at a time. */
const BATCH = 500;

interface Purchase {
  readonly id: string;
  readonly state: string;
  readonly account_id: string;
  readonly amount_cents: number;
  readonly session_id: string | null;
}

/**
 * Compares every purchase with the processor's own records: those of its list of completed sessions, a hundred a call,
 * and then one by one the credited purchases that the list doesn't have. Only reads.
 */
export async function auditPurchases(db: Database, processor: Processor, progress: Progress): Promise<OutsideAudit> {
  const findings = new Findings(PURCHASE_RULES);
  const seen = new Set<string>();
  let compared = 0;
  try {
    const instanceId = await findInstanceId(db);
    for (let after: string | undefined; ; ) {
      const { sessions, hasMore } = await processor.listSessions(0, after);
      const ours = sessions.filter((session) => session.metadata?.instance_id === instanceId);
      const purchases = await purchasesOf(db, ours);
      for (const session of ours) {
        const purchase = purchases.get(session.metadata?.top_up_id ?? '');
        compareListed(session, purchase, instanceId);
        if (purchase?.session_id === session.id) seen.add(session.id);
      }
      compared += sessions.length;
      progress(compared);
      if (!hasMore) break;
      after = sessions.at(-1)?.id;
    }
    for await (const batch of creditedPurchases(db)) {
      const unseen = batch.filter(({ session_id }) => session_id === null || !seen.has(session_id));
      await eachOf(unseen, CONCURRENCY, async (purchase) => {
        const session = purchase.session_id === null ? undefined : await processor.findSession(purchase.session_id);
        const faults = session ? faultsOf(session, purchase, instanceId) : ['the processor knows no such session'];
        if (faults.length > 0) findings.add(CREDITED_IS_PAID, shown(purchase, faults));
        compared++;
      });
      progress(compared);
    }
  } catch (error) {
    if (!(error instanceof ProcessorError)) throw error;
    return { findings: findings.list(), compared, unanswered: [error.message] };
  }
  return { findings: findings.list(), compared, unanswered: [] };

  function compareListed(session: Stripe.Checkout.Session, purchase: Purchase | undefined, instanceId: string): void {
    if (purchase?.state === 'credited') {
      const faults = faultsOf(session, purchase, instanceId);
      if (faults.length > 0) findings.add(CREDITED_IS_PAID, shown(purchase, faults));
    } else if (isPaid(session) && session.livemode === processor.livemode && !isOnItsWay(purchase)) {
      const { top_up_id: id, account_id } = session.metadata ?? {};
      findings.add(PAID_IS_CREDITED, {
        ...{ purchase: id, account: account_id, cents: session.amount_total },
        state: purchase?.state ?? 'missing',
        paid: new Date(session.created * 1000).toISOString(),
      });
    }
  }

  /** What of the session is not as the credited purchase has it. */
  function faultsOf(session: Stripe.Checkout.Session, purchase: Purchase, instanceId: string): string[] {
    const { instance_id, top_up_id, account_id } = session.metadata ?? {};
    const checks: [holds: boolean, fault: string][] = [
      [isPaid(session), 'it is not paid'],
      [session.id === purchase.session_id, 'it is another session'],
      [session.mode === 'payment' && session.currency === 'usd', 'it is no payment in USD'],
      [session.livemode === processor.livemode, 'it is of another mode than the key'],
      [instance_id === instanceId, 'it is of another instance'],
      [top_up_id === purchase.id, 'it is of another purchase'],
      [account_id === purchase.account_id, 'it is for another account'],
      [session.amount_total === purchase.amount_cents, `it is of ${session.amount_total} cents`],
    ];
    return checks.filter(([holds]) => !holds).map(([, fault]) => fault);
  }
}

const isPaid = (session: Stripe.Checkout.Session): boolean => session.payment_status === 'paid';

/** It is looked at until its session's end, and credited then. */
const isOnItsWay = (purchase: Purchase | undefined): boolean =>
  purchase?.state === 'opening' || purchase?.state === 'open';

/** No session's id: it shows an account to whoever holds it (R40). */
const shown = ({ id, account_id, amount_cents }: Purchase, faults: readonly string[]) => ({
  ...{ purchase: id, account: account_id, cents: amount_cents },
  session: faults.join(', '),
});

async function purchasesOf(
  db: Database,
  sessions: readonly Stripe.Checkout.Session[],
): Promise<ReadonlyMap<string, Purchase>> {
  const ids = sessions.map((session) => session.metadata?.top_up_id ?? '').filter(isUuid);
  const { rows } = await sql<Purchase>`
    select id, state, account_id, amount_cents, session_id from top_up
    where id = any(${ids}::uuid[])`.execute(db);
  return new Map(rows.map((row) => [row.id, row]));
}

async function* creditedPurchases(db: Database): AsyncGenerator<Purchase[]> {
  for (let after = '00000000-0000-0000-0000-000000000000'; ; ) {
    const { rows } = await sql<Purchase>`
      select id, state, account_id, amount_cents, session_id from top_up
      where state = 'credited' and id > ${after}::uuid order by id limit ${BATCH}`.execute(db);
    const last = rows.at(-1);
    if (!last) return;
    yield rows;
    after = last.id;
  }
}

/** Whether there are purchases to compare. */
export async function hasPurchases(db: Database): Promise<boolean> {
  const { rows } = await sql`select from top_up where state = 'credited' limit 1`.execute(db);
  return rows.length > 0;
}
