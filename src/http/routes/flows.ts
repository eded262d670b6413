import type { DatabaseIdentity } from '../../ledger/database-identity.ts';
import type { KnownPauses, PausableFlow } from '../../ledger/pauses.ts';
import { SpeechError } from '../../speech/provider.ts';
import type { OperationContext } from '../operations.ts';
import { failure } from '../structured-error.ts';

/** Refuses headers of another flow (R36). */
export function refuseForeignHeaders(request: OperationContext, foreign: readonly string[]) {
  const found = foreign.find((name) => request.hasHeader(name));
  return found === undefined
    ? undefined
    : failure(
        'INVALID_REQUEST',
        `The header ${found} belongs to another payment flow. Send the headers of one flow only. This request was not charged.`,
        { field: found, rule: 'one flow' },
      );
}

/** Refuses a payment in the header of x402 version 1, which would otherwise be ignored (R74). */
export function refuseFormerHeader(request: OperationContext) {
  if (!request.hasHeader('x-payment')) return undefined;
  const message =
    'x-payment is the header of x402 version 1. Send an x402 version 2 payload in payment-signature. You were not charged.';
  return failure('INVALID_PAYMENT_PAYLOAD', message, { field: 'x-payment', rule: 'payment-signature' });
}

const FOREIGN_DATABASE = failure(
  'CONFIG_ERROR',
  "The service's database is for another network or token than its settings name. The operator must correct DATABASE_URL, X402_NETWORK or X402_ASSET. This request was not charged.",
  { reason: 'database_of_another_network', setting: 'X402_NETWORK' },
);

/** Before money moves, the database must have confirmed its network; otherwise what is known so far counts. */
export async function refuseForeignDatabase(identity: DatabaseIdentity, movesMoney: boolean) {
  const mismatch = movesMoney && !identity.isKnown ? await identity.check() : identity.mismatch;
  return mismatch && FOREIGN_DATABASE;
}

export type Pauses = Pick<KnownPauses, 'has'>;

export const PAUSE_RETRY_SECONDS = 30;

const PAUSED: Readonly<Record<PausableFlow, string>> = {
  card: 'The operator has paused speech paid by card credit.',
  jobs: 'The operator has paused asynchronous speech.',
  'top-up': 'The operator has paused the purchase of credit. Retry later. You were not charged.',
  direct: 'The operator has paused direct payment in USDC.',
  prepaid: 'The operator has paused payment from prepaid balances.',
  deposit: 'The operator has paused deposits. Retry later. You were not charged.',
};

/** The error for a paused flow (R9); undefined while the flow is open. */
export const pausedSpeech = (pauses: Pauses, flow: PausableFlow): SpeechError | undefined =>
  pauses.has(flow)
    ? new SpeechError('TTS_UNAVAILABLE', PAUSED[flow], true, PAUSE_RETRY_SECONDS, 'utterance', 'paused')
    : undefined;

export const pausedAnswer = (flow: 'top-up' | 'deposit') => ({
  ...failure('CONFIG_ERROR', PAUSED[flow], { reason: 'paused', retryAfterSeconds: PAUSE_RETRY_SECONDS }),
  headers: { 'retry-after': PAUSE_RETRY_SECONDS },
});
