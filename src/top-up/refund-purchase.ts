import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';
import { usedFor } from '../operators/account-changes.ts';
import { type Deed, isRecorded, recordAction } from '../operators/operator-action.ts';
import { meaningOf } from './clawback-status.ts';
import type { Clawbacks } from './clawbacks.ts';
import type { Processor } from './processor.ts';
import { idOf, ProcessorError } from './processor-call.ts';
import type { ProcessorClawback } from './processor-clawbacks.ts';

/** A purchase that was credited. */
export interface CreditedPurchase {
  readonly id: string;
  readonly accountId: string;
  readonly sessionId: string;
  /** Null for purchases of earlier releases: the processor is asked for it. */
  readonly paymentIntentId: string | null;
  readonly amountCents: number;
  readonly creditedAt: Date;
}

/** The credited purchase with this id, or with this checkout session; undefined when there is none. */
export async function findCreditedPurchase(db: Database, name: string): Promise<CreditedPurchase | undefined> {
  const { rows } = await sql<CreditedPurchase>`
    select id, account_id as "accountId", session_id as "sessionId", payment_intent_id as "paymentIntentId",
           amount_cents as "amountCents", credited_at as "creditedAt"
    from top_up where (id::text = lower(${name}) or session_id = ${name}) and state = 'credited'`.execute(db);
  return rows[0];
}

export interface RefundRequest {
  readonly purchase: CreditedPurchase;
  /** Undefined for all that is left of it. */
  readonly amountCents: number | undefined;
  /** A UUID of this refund: its idempotency key at the processor, and by which it is found there afterwards. */
  readonly key: string;
}

export type RefundResult =
  | { readonly outcome: 'refunded'; readonly refund: ProcessorClawback; readonly unclear: string | undefined }
  | { readonly outcome: 'key_of_another' }
  /** The processor made none: all was refunded before, or it knows no such payment. */
  | { readonly outcome: 'refused'; readonly error: ProcessorError };

/**
 * Pays a purchase back to its card, and books that at once (R61). What the operator asked for is written down before the
 * processor is called, and what came of it afterwards. When it breaks off, it is repeated with the same key, or the
 * reconcilers book it.
 */
export async function refundPurchase(
  { db, processor, clawbacks }: { db: Database; processor: Processor; clawbacks: Clawbacks },
  { purchase, amountCents, key }: RefundRequest,
  deed: Deed,
): Promise<RefundResult> {
  const asked = { action: 'ask_refund', subject: purchase.id, detail: { amountCents: amountCents ?? 'all' } };
  const earlier = await usedFor(db, key, asked);
  if (earlier === 'key_of_another') return { outcome: earlier };
  if (earlier === 'unused') await recordAction(db, { ...deed, ...asked, key });
  testPoint('refund asked');
  let refund: ProcessorClawback;
  try {
    const paymentIntentId = purchase.paymentIntentId ?? (await paymentOf(processor, purchase));
    const made = earlier === 'made_before' ? await processor.clawbacks.findRefund(paymentIntentId, key) : undefined;
    refund = made ?? (await processor.clawbacks.refund(paymentIntentId, amountCents, key));
  } catch (error) {
    if (!(error instanceof ProcessorError) || error.status === undefined || error.status >= 500) throw error;
    return { outcome: 'refused', error };
  }
  testPoint('refund made');
  const { unclear } = await clawbacks.record(refund);
  testPoint('refund booked');
  const detail = { refund: refund.id, amountCents: refund.amountCents };
  const made = { action: 'refund', subject: purchase.id, detail };
  // It may have been booked before this, by a try that died then, or by the reconcilers.
  if (meaningOf(refund).isTaken && !(await isRecorded(db, made))) {
    await recordAction(db, { ...deed, ...made });
  }
  return { outcome: 'refunded', refund, unclear };
}

async function paymentOf(processor: Processor, { sessionId }: CreditedPurchase): Promise<string> {
  const session = await processor.findSession(sessionId);
  const paymentIntentId = idOf(session?.payment_intent);
  if (paymentIntentId === null) throw new ProcessorError('the processor knows no payment of this purchase', 404);
  return paymentIntentId;
}
