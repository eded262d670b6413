import type { Database } from '../db/database.ts';
import { SpeechError } from '../speech/provider.ts';
import type { AdmittedSpeech, Delivery, Earlier } from './delivery.ts';
import type { Charge, PaymentFlow, PaymentHold, Replayed } from './payment-flow.ts';
import type { RefusalCode, Refused } from './refusal.ts';

/** Speech that is asked for: how it is paid, what for, and how it is to arrive. */
export interface Sale<
  Credential,
  Code extends RefusalCode,
  Hold extends PaymentHold<Code>,
  C extends Charge,
  Delivered,
  Replay,
> {
  readonly flow: PaymentFlow<Credential, Code, Hold, C, Replay>;
  readonly credential: Credential;
  readonly charge: C;
  readonly delivery: Delivery<Hold, Delivered, Replay>;
  /** Told at once when the price is held. */
  onHeld?(hold: Hold): void;
}

export type Spoken<Code extends RefusalCode, Hold extends PaymentHold, Delivered, Replay> =
  | { readonly outcome: 'delivered'; readonly delivered: Delivered; readonly hold: Hold }
  | Replayed<Replay, Hold['receipt']>
  | Refused<Code>
  | Earlier
  | SpeechFailed<Hold>;

/** The speech was not taken on, or failed. Whatever was held has been given back. */
export interface SpeechFailed<Hold> {
  readonly outcome: 'failed';
  readonly error: SpeechError;
  readonly hold: Hold | undefined;
}

/**
 * Sells speech, by whatever flow and delivery:
 *
 *     admit      the provider has room, else failed: nothing is asked of the payer
 *     authorize  the price is held; else refused, or the answer that was paid before
 *     deliver    speak, capture, hand over; when the provider fails, void
 *
 * A flow that asks others keeps no place meanwhile, lest payments that fail keep others out: it is admitted once more
 * when the price is held. Whoever calls this looks up what was paid before when nothing was held.
 */
export async function speak<
  Credential,
  Code extends RefusalCode,
  Hold extends PaymentHold<Code>,
  C extends Charge,
  Delivered,
  Replay,
>(sale: Sale<Credential, Code, Hold, C, Delivered, Replay>): Promise<Spoken<Code, Hold, Delivered, Replay>> {
  const { flow, charge, delivery } = sale;
  const admitted = delivery.admit(charge.utterance);
  if (admitted instanceof SpeechError) return failed(admitted);
  if (flow.isRemote) admitted.release();
  try {
    if (delivery.within) return await delivery.within((trx) => authorizeAndDeliver(sale, admitted, trx));
    return await authorizeAndDeliver(sale, admitted, undefined);
  } finally {
    if (!flow.isRemote) admitted.release();
  }
}

async function authorizeAndDeliver<
  Credential,
  Code extends RefusalCode,
  Hold extends PaymentHold<Code>,
  C extends Charge,
  Delivered,
  Replay,
>(
  { flow, credential, charge, delivery, onHeld }: Sale<Credential, Code, Hold, C, Delivered, Replay>,
  admitted: AdmittedSpeech<Hold, Delivered>,
  trx: Database | undefined,
): Promise<Spoken<Code, Hold, Delivered, Replay>> {
  const authorization = await flow.authorize(credential, charge, trx);
  if (authorization.outcome !== 'held') return authorization;
  const { hold } = authorization;
  onHeld?.(hold);
  const place = flow.isRemote ? delivery.admit(charge.utterance) : admitted;
  if (place instanceof SpeechError) {
    await hold.void();
    return failed(place, hold);
  }
  try {
    const result = await place.deliver<Code>(hold, trx);
    return result.outcome === 'delivered' ? { hold, ...result } : { receipt: hold.receipt, ...result };
  } catch (error) {
    if (!(error instanceof SpeechError)) throw error;
    return failed(error, hold);
  } finally {
    if (flow.isRemote) place.release();
  }
}

const failed = <Hold>(error: SpeechError, hold?: Hold): SpeechFailed<Hold> => ({ outcome: 'failed', error, hold });
