import { chargedOf, isFinal, pursueSpeech } from './buy.ts';
import { CARD_TARGET, JOB_TARGET } from './card-credits.ts';
import { DEPOSIT_TARGET, pursueDeposit } from './deposit.ts';
import { X402_TARGET } from './direct-x402.ts';
import { AudioLostError, SpeechgateError } from './errors.ts';
import type { Service } from './payment-way.ts';
import type { PendingPurchase } from './pending-purchase.ts';
import { isJob } from './read-card.ts';
import { hasEnded, isNonceForgotten } from './read-refusal.ts';
import type { Speech } from './speech.ts';

/** What a purchase came to. */
export interface Conclusion {
  /** 0 when nothing was charged. Of a card request that is no job it can't be found out, and counts as charged. */
  readonly chargedMicroUsd: bigint;
  readonly speech: Speech | null;
}

const TARGETS = {
  speech: { card: [CARD_TARGET, JOB_TARGET], direct: [X402_TARGET], prepaid: [X402_TARGET] },
  deposit: { card: [], direct: [DEPOSIT_TARGET], prepaid: [] },
} as const;

/**
 * Refuses what this client can't ask for: a purchase from another service or of another kind, and a card request that is
 * no job, since repeating that is a new purchase.
 */
export function checkPending(pending: PendingPurchase, kind: PendingPurchase['kind'], { baseUrl }: Service): void {
  const targets: readonly string[] = TARGETS[kind][pending.flow] ?? [];
  if (pending.kind !== kind || pending.method !== 'POST' || !targets.includes(pending.target)) {
    throw new SpeechgateError(`${pending.identifier} is no pending ${kind}.`);
  }
  if (pending.baseUrl !== baseUrl) {
    throw new SpeechgateError(`${pending.identifier} is a purchase from ${pending.baseUrl}.`);
  }
  if (pending.flow === 'card' && !isJob(pending)) {
    const maxMicroUsd = BigInt(pending.maxMicroUsd);
    throw new AudioLostError('A card request without `durable` can not be resumed: it would be paid again.', {
      chargedMicroUsd: null,
      maxMicroUsd,
    });
  }
}

/**
 * Asks once what a purchase came to; null while that is unknown, or a signature could still buy it. Once the service may
 * have deleted a prepaid nonce, it stays unknown for good: only `resume` asks then.
 */
export async function conclude(
  pending: PendingPurchase,
  service: Service,
  signal: AbortSignal | undefined,
): Promise<Conclusion | null> {
  if (pending.flow === 'card' && pending.kind === 'speech' && !isJob(pending)) {
    return { chargedMicroUsd: BigInt(pending.maxMicroUsd), speech: null };
  }
  checkPending(pending, pending.kind, service);
  if ((pending.expiresAt !== null && !hasEnded(pending)) || isNonceForgotten(pending)) return null;
  const once = { patienceMs: 0, isRepetition: true };
  if (pending.kind === 'deposit') {
    const end = await pursueDeposit(pending, service, { signal, ...once });
    return isFinal(end, pending) ? { chargedMicroUsd: chargedOf(end, pending), speech: null } : null;
  }
  const end = await pursueSpeech({ pending, service, signal, ...once });
  if (!isFinal(end, pending)) return null;
  return { chargedMicroUsd: chargedOf(end, pending), speech: end.outcome === 'bought' ? end.bought : null };
}
