import type { AudioStore } from '../audio/audio-store.ts';
import type { Database } from '../db/database.ts';
import { fragment, statement } from '../db/statement.ts';
import { PAYMENT_COLUMNS, type Payment, REPLAY_WINDOW_SECONDS, readPayments } from './payment.ts';
import { LAST_LOOK_SECONDS } from './payment-outcomes.ts';

/** Where the audio of a payment is kept. Whoever takes a reservation over has a fence, and so an object, of its own. */
export const paymentAudioKey = ({ id, fence }: Pick<Payment, 'id' | 'fence'>): string => `x402/${id}-${fence}`;

/** Deletes the audio of a payment, also what former owners of its reservation may have stored. */
export async function deletePaymentAudio(store: AudioStore, { id, fence }: Payment): Promise<void> {
  for (let owner = 1; owner <= fence; owner++) await store.delete(paymentAudioKey({ id, fence: owner }));
}

/**
 * Payments whose audio nobody can ask for any more, at most so many. One that has failed keeps it until it has been
 * looked for once more: when that settles it, its payer is to have what he has paid for.
 */
export async function findAudioToDelete(db: Database, limit: number): Promise<Payment[]> {
  const hasAudio = fragment`purpose = 'speech' and audio_deleted_at is null`;
  return readPayments(
    db,
    statement`
    (select ${PAYMENT_COLUMNS} from x402_payment where state = 'failed' and ${hasAudio}
       and next_look_at is null and failed_at < now() - make_interval(secs => ${LAST_LOOK_SECONDS}::double precision)
     order by failed_at limit ${limit})
    union all
    (select ${PAYMENT_COLUMNS} from x402_payment where state = 'settled' and ${hasAudio}
       and settled_at < now() - make_interval(secs => ${REPLAY_WINDOW_SECONDS}::double precision)
     order by settled_at limit ${limit})
    limit ${limit}`,
  );
}

export async function markAudioDeleted(db: Database, payments: readonly Payment[]): Promise<void> {
  const ids = payments.map(({ id }) => id);
  await statement`update x402_payment set audio_deleted_at = now() where id = any(${ids}::bigint[])`.execute(db);
}
