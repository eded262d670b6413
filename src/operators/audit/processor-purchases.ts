import type { Selectable } from 'kysely';
import type Stripe from 'stripe';
import type { TopUp } from '../../../db/tables.ts';
import type { Database } from '../../db/database.ts';
import { anyOf } from '../../db/expressions.ts';
import { findInstanceId } from '../../ledger/database-identity.ts';
import { counted } from '../../lib/counted.ts';
import { eachOf } from '../../lib/each-of.ts';
import { isUuid } from '../../lib/uuid.ts';
import { amountsOf, type Processor } from '../../payments/top-up/processor.ts';
import { auditOutside, type OutsideAudit, type Progress, pagesById, pagesOfList } from './outside.ts';

const CREDITED_IS_PAID = 'each credited purchase is a paid session at the card processor with its amount and account';
const PAID_IS_CREDITED =
  'each paid session of this service at the card processor is credited, or a reconciler will credit it';
export const PURCHASE_RULES = [CREDITED_IS_PAID, PAID_IS_CREDITED];

const CONCURRENCY = 4;
const BATCH = 500;

const COLUMNS = ['id', 'state', 'account_id', 'amount_cents', 'session_id'] as const;
type Purchase = Pick<Selectable<TopUp>, (typeof COLUMNS)[number]>;

/** Compares the processor's completed sessions, then looks up credited purchases that are not listed. Only reads. */
export function auditPurchases(db: Database, processor: Processor, progress: Progress): Promise<OutsideAudit> {
  return auditOutside(PURCHASE_RULES, progress, async ({ add, count }) => {
    const seen = new Set<string>();
    const instanceId = await findInstanceId(db);
    for await (const sessions of pagesOfList((after) => processor.listSessions(0, after))) {
      const ours = sessions.filter((session) => session.metadata?.instance_id === instanceId);
      const purchases = await purchasesOf(db, ours);
      for (const session of ours) {
        const purchase = purchases.get(session.metadata?.top_up_id ?? '');
        // It may have been paid after it was listed.
        const isStale = purchase?.state === 'credited' && !isPaid(session);
        compareListed((isStale && (await processor.findSession(session.id))) || session, purchase);
        if (purchase?.session_id === session.id) seen.add(session.id);
      }
      count(sessions.length);
    }
    for await (const batch of pagesById((after) => creditedAfter(db, after))) {
      const unseen = batch.filter(({ session_id }) => session_id === null || !seen.has(session_id));
      await eachOf(unseen, CONCURRENCY, async (purchase) => {
        compareCredited(
          purchase.session_id === null ? undefined : await processor.findSession(purchase.session_id),
          purchase,
        );
        count(1);
      });
    }
    return [];

    function compareListed(session: Stripe.Checkout.Session, purchase: Purchase | undefined): void {
      if (purchase?.state === 'credited') compareCredited(session, purchase);
      else if (isPaid(session) && session.livemode === processor.livemode && !isOnItsWay(purchase)) {
        const { top_up_id: id, account_id } = session.metadata ?? {};
        add(PAID_IS_CREDITED, {
          purchase: id,
          account: account_id,
          cents: amountsOf(session).amountCents,
          state: purchase?.state ?? 'missing',
          paid: new Date(session.created * 1000).toISOString(),
        });
      }
    }

    function compareCredited(session: Stripe.Checkout.Session | undefined, purchase: Purchase): void {
      const faults = session
        ? faultsOf(session, purchase, instanceId)
        : ['the card processor has no session with this id'];
      if (faults.length === 0) return;
      // Without the session's id, which is a secret (R40).
      const { id, account_id, amount_cents } = purchase;
      add(CREDITED_IS_PAID, { purchase: id, account: account_id, cents: amount_cents, session: faults.join(', ') });
    }
  });

  function faultsOf(session: Stripe.Checkout.Session, purchase: Purchase, instanceId: string): string[] {
    const { instance_id, top_up_id, account_id } = session.metadata ?? {};
    const { amountCents } = amountsOf(session);
    const checks: [holds: boolean, fault: string][] = [
      [isPaid(session), 'the session is not paid'],
      [session.id === purchase.session_id, 'the card processor returned another session'],
      [session.mode === 'payment' && session.currency === 'usd', 'the session is not a payment in USD'],
      [
        session.livemode === processor.livemode,
        'the session and STRIPE_SECRET_KEY are of different modes (test and live)',
      ],
      [instance_id === instanceId, 'the session belongs to another service'],
      [top_up_id === purchase.id, 'the session belongs to another purchase'],
      [account_id === purchase.account_id, 'the session at the card processor names another account'],
      [amountCents === purchase.amount_cents, `the session has an amount of ${counted(amountCents, 'cent')}`],
    ];
    return checks.filter(([holds]) => !holds).map(([, fault]) => fault);
  }
}

const isPaid = (session: Stripe.Checkout.Session): boolean => session.payment_status === 'paid';

/** The reconcilers still look up its session, and credit it once it is paid. */
const isOnItsWay = (purchase: Purchase | undefined): boolean =>
  purchase?.state === 'opening' || purchase?.state === 'open';

async function purchasesOf(
  db: Database,
  sessions: readonly Stripe.Checkout.Session[],
): Promise<ReadonlyMap<string, Purchase>> {
  const ids = sessions.map((session) => session.metadata?.top_up_id ?? '').filter(isUuid);
  const rows = await db.selectFrom('top_up').select(COLUMNS).where('id', '=', anyOf(ids)).execute();
  return new Map(rows.map((row) => [row.id, row]));
}

const creditedAfter = (db: Database, after: string): Promise<Purchase[]> =>
  db
    .selectFrom('top_up')
    .select(COLUMNS)
    .where('state', '=', 'credited')
    .where('id', '>', after)
    .orderBy('id')
    .limit(BATCH)
    .execute();

export async function hasPurchases(db: Database): Promise<boolean> {
  const purchases = db.selectFrom('top_up').where('state', '=', 'credited').limit(1);
  return (await purchases.executeTakeFirst()) !== undefined;
}
