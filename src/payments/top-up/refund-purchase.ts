import type { NotNull } from 'kysely';
import type { Database } from '../../db/database.ts';
import { usedFor } from '../../ledger/account-changes.ts';
import { isRecorded, type OperatorAction, recordAction } from '../../ledger/operator-action.ts';
import { testPoint } from '../../lib/test-point.ts';
import { type Clawbacks, effectOf } from './clawbacks.ts';
import type { Processor } from './processor.ts';
import { idOf, ProcessorError } from './processor-call.ts';
import type { ProcessorClawback } from './processor-clawbacks.ts';

export interface CreditedPurchase {
  readonly id: string;
  readonly accountId: string;
  readonly sessionId: string;
  readonly paymentIntentId: string | null;
  readonly amountCents: number;
  readonly taxCents: number;
  readonly creditedAt: Date;
}

export async function findCreditedPurchase(db: Database, name: string): Promise<CreditedPurchase | undefined> {
  return db
    .selectFrom('top_up')
    .select(['id', 'account_id as accountId', 'session_id as sessionId', 'payment_intent_id as paymentIntentId'])
    .select(['amount_cents as amountCents', 'tax_cents as taxCents', 'credited_at as creditedAt'])
    .where('state', '=', 'credited')
    .where((eb) => eb.or([eb(eb.cast('id', 'text'), '=', name.toLowerCase()), eb('session_id', '=', name)]))
    .$narrowType<{ sessionId: NotNull; creditedAt: NotNull }>()
    .executeTakeFirst();
}

export interface RefundRequest {
  readonly purchase: CreditedPurchase;
  readonly amountCents: number | undefined;
  /** The refund's idempotency key at the processor: a retry must use the same one. */
  readonly key: string;
}

type RefundResult =
  | { readonly outcome: 'refunded'; readonly refund: ProcessorClawback; readonly unclear: string | undefined }
  | { readonly outcome: 'key_of_another' }
  | { readonly outcome: 'refused'; readonly error: ProcessorError };

/** Statuses that exclude a refund under the key. An earlier call may have made one before the key's rights changed. */
const REFUSALS: Readonly<Record<'unused' | 'made_before', ReadonlySet<number | undefined>>> = {
  unused: new Set([400, 401, 402, 403, 404]),
  made_before: new Set([400, 402]),
};

/** Refunds to the card and books it (R61). If interrupted, repeat it with the same key, or reconcilers book it. */
export async function refundPurchase(
  { db, processor, clawbacks }: { db: Database; processor: Processor; clawbacks: Clawbacks },
  { purchase, amountCents, key }: RefundRequest,
  operatorAction: OperatorAction,
): Promise<RefundResult> {
  const asked = { action: 'ask_refund', subject: purchase.id, detail: { amountCents: amountCents ?? 'all' } };
  const earlier = await usedFor(db, key, asked);
  if (earlier === 'key_of_another') return { outcome: earlier };
  if (earlier === 'unused') await recordAction(db, { ...operatorAction, ...asked, key });
  testPoint('refund asked');
  let refund: ProcessorClawback;
  try {
    const paymentIntentId = purchase.paymentIntentId ?? (await paymentIntentOf(processor, purchase));
    const made = earlier === 'made_before' ? await processor.clawbacks.findRefund(paymentIntentId, key) : undefined;
    refund = made ?? (await processor.clawbacks.refund(paymentIntentId, amountCents, key));
  } catch (error) {
    if (!(error instanceof ProcessorError) || !REFUSALS[earlier].has(error.status)) throw error;
    return { outcome: 'refused', error };
  }
  testPoint('refund made');
  const { unclear } = await clawbacks.record(refund);
  testPoint('refund booked');
  const detail = { refund: refund.id, amountCents: refund.amountCents };
  const made = { action: 'refund', subject: purchase.id, detail };
  // An earlier attempt that died, or the reconcilers, may have booked it before.
  if (effectOf(refund).isTaken && !(await isRecorded(db, made))) {
    await recordAction(db, { ...operatorAction, ...made });
  }
  return { outcome: 'refunded', refund, unclear };
}

async function paymentIntentOf(processor: Processor, { sessionId }: CreditedPurchase): Promise<string> {
  const session = await processor.findSession(sessionId);
  const paymentIntentId = idOf(session?.payment_intent);
  if (paymentIntentId === null)
    throw new ProcessorError('the card processor has no payment for this purchase, so nothing was refunded', 404);
  return paymentIntentId;
}
