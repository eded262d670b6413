import type { Database } from '../db/database.ts';
import type { SpeechError, Utterance } from '../speech/provider.ts';
import type { PaymentHold, Replayed } from './payment-flow.ts';
import type { RefusalCode, Refused } from './refusal.ts';

/** How what a hold pays for reaches its caller: streamed, buffered, or queued for later. */
export interface Delivery<Hold extends PaymentHold, Delivered, Replay = never> {
  /** Takes the speech on, or tells why not: then nothing has been paid, and nothing has to be given back. */
  admit(utterance: Utterance): AdmittedSpeech<Hold, Delivered> | SpeechError;
  /** Runs `sell` in a transaction, where authorization and delivery must both happen or neither; or finds the earlier answer. */
  within?<Sold>(sell: (trx: Database) => Promise<Sold>): Promise<Sold | Replayed<Replay, Hold['receipt']> | Earlier>;
}

/** What an earlier request refuses to a later one. */
export type Earlier = Refused<'INVALID_REQUEST' | 'PAYMENT_REQUIRED'>;

/** Speech that was taken on before it is paid. Its place is kept until it is released. */
export interface AdmittedSpeech<Hold extends PaymentHold, Delivered> {
  /**
   * Speaks, and ends the hold, or hands it on to who will. Refused: the capture was.
   * @param trx of `within`
   * @throws SpeechError when the provider fails; the hold is void by then
   */
  deliver<Code extends RefusalCode>(
    hold: Hold & PaymentHold<Code>,
    trx?: Database,
  ): Promise<{ readonly outcome: 'delivered'; readonly delivered: Delivered } | Refused<Code>>;
  /** Gives the place back, and what is kept for it. A synthesis that has begun goes on. */
  release(): void;
}
