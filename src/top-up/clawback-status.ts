import type Stripe from 'stripe';
import type { ClawbackKind, ProcessorClawback } from './processor-clawbacks.ts';

interface Meaning {
  /** The processor has taken the money back for now. */
  readonly isTaken: boolean;
  /** It changes rarely from here on, and after some weeks not at all. */
  readonly isFinal: boolean;
}

const taken = { isTaken: true, isFinal: false };
const takenAtLast = { isTaken: true, isFinal: true };
const left = { isTaken: false, isFinal: false };
const leftAtLast = { isTaken: false, isFinal: true };

/** The SDK types it as any text; its documentation lists these. */
type RefundStatus = 'pending' | 'requires_action' | 'succeeded' | 'failed' | 'canceled';
/** The SDK's type without the "any other text" that it ends with. */
type Listed<Status> = Status extends string ? (string extends Status ? never : Status) : never;

const REFUND: Readonly<Record<RefundStatus, Meaning>> = {
  pending: taken,
  succeeded: takenAtLast,
  requires_action: left,
  failed: leftAtLast,
  canceled: leftAtLast,
};

/** An inquiry, whose statuses begin with `warning`, takes nothing. An appeal follows a dispute that was lost. */
const DISPUTE: Readonly<Record<Listed<Stripe.Dispute.Status>, Meaning>> = {
  needs_response: taken,
  under_review: taken,
  lost: takenAtLast,
  appeal_needs_response: taken,
  appeal_under_review: taken,
  won: leftAtLast,
  warning_needs_response: left,
  warning_under_review: left,
  warning_closed: leftAtLast,
  prevented: leftAtLast,
};

const MEANINGS: Readonly<Record<ClawbackKind, Readonly<Record<string, Meaning>>>> = {
  refund: REFUND,
  dispute: DISPUTE,
};

export const isStatusKnown = ({ kind, status }: Pick<ProcessorClawback, 'kind' | 'status'>): boolean =>
  Object.hasOwn(MEANINGS[kind], status);

/**
 * What a refund or dispute means for the account (R61). A status that this release does not know means what its balance
 * transactions say. One in another currency takes nothing: how much it would be is for an operator to decide.
 */
export function meaningOf({
  kind,
  status,
  currency,
  isWithdrawn,
}: Pick<ProcessorClawback, 'kind' | 'status' | 'currency' | 'isWithdrawn'>): Meaning {
  const known = isStatusKnown({ kind, status }) ? MEANINGS[kind][status] : undefined;
  const { isTaken, isFinal } = known ?? { isTaken: isWithdrawn, isFinal: false };
  return { isTaken: isTaken && currency === 'usd', isFinal };
}
