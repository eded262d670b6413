import type { Attack } from './attack.ts';
import type { Attempt, Note } from './attempt.ts';
import type { Payment } from './chain.ts';

/** Faults of a try, in the order of the table. */
export const COUNTS = [
  'paid, not served',
  'served, not paid',
  'paid twice',
  'wrong status',
  'hung',
  'crashed',
] as const;
export type Count = (typeof COUNTS)[number];

/**
 * Judges a try by transfers to the payee and by received bytes, not by what responses claim.
 * @param payments all transfers to the target's payee
 * @param failure exception of the try
 * @param isCrashed the target exited during the batch
 */
export function judge(
  attack: Attack,
  attempt: Attempt,
  payments: readonly Payment[],
  failure: unknown,
  isCrashed: boolean,
): readonly Count[] {
  const own = paidBy(attempt, payments);
  const received = own.reduce((sum, { value }) => sum + value, 0n);
  const served = attempt.delivered.size;
  const found: Record<Count, boolean> = {
    'paid, not served': own.length > 0 && served === 0,
    'served, not paid': received < BigInt(served) * attempt.price,
    'paid twice': served > 0 && own.length > served,
    'wrong status': failure !== undefined || attempt.notes.some((note) => isWrong(attack, note)),
    hung: attempt.notes.some(({ answer }) => answer.hasHungUp),
    crashed: isCrashed,
  };
  return COUNTS.filter((count) => found[count]);
}

/** The client has paid and received nothing yet. */
export const isCheated = (attempt: Attempt, payments: readonly Payment[]): boolean =>
  attempt.delivered.size === 0 && paidBy(attempt, payments).length > 0;

const paidBy = ({ payer }: Attempt, payments: readonly Payment[]): Payment[] =>
  payments.filter((payment) => payment.payer.toLowerCase() === payer.address.toLowerCase());

/** A challenge (402) and a 409 ("retry later") are never wrong: every attack may meet them. */
function isWrong({ right }: Attack, { answer, isPaid, isDelivery }: Note): boolean {
  if (answer.hasHungUp) return false;
  if (!answer.isWhole) return right !== 'broken';
  const { status } = answer;
  if (status === 200) return !isDelivery;
  if (right === 'served' && isPaid) return status !== 409;
  return status < 400 || status >= (right === 'refused' || right === 'served' ? 500 : 600);
}
