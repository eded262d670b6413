import type { Attack } from './attack.ts';
import type { Attempt, Note } from './attempt.ts';
import type { Payment } from './servers/chain.ts';

/** What may go wrong with a try, in the order of the table. */
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
 * What went wrong with a try, by what the chain has moved to the payee and by the bytes that arrived, whatever was said.
 * @param payments all that were made to the target's payee
 * @param failure what the try threw
 * @param isCrashed the target has ended during it
 */
export function judge(
  attack: Attack,
  attempt: Attempt,
  payments: readonly Payment[],
  failure: unknown,
  isCrashed: boolean,
): readonly Count[] {
  const addresses = new Set(attempt.payers.map(({ address }) => address.toLowerCase()));
  const own = payments.filter(({ payer }) => addresses.has(payer.toLowerCase()));
  const received = own.reduce((sum, { value }) => sum + value, 0n);
  const served = attempt.delivered.size;
  const found: Record<Count, boolean> = {
    'paid, not served': own.length > 0 && served === 0,
    'served, not paid': received < BigInt(served) * attempt.price,
    'paid twice': served > 0 && own.length > served,
    'wrong status': failure !== undefined || attempt.notes.some((note) => isWrong(attack, note)),
    hung: attempt.notes.some(({ answer }) => answer.outcome === 'hung'),
    crashed: isCrashed,
  };
  return COUNTS.filter((count) => found[count]);
}

/** Whether a client has paid and got nothing so far. */
export const isCheated = (attempt: Attempt, payments: readonly Payment[]): boolean =>
  attempt.delivered.size === 0 &&
  payments.some(({ payer }) => attempt.payers.some(({ address }) => address.toLowerCase() === payer.toLowerCase()));

/** A challenge is no wrong answer of any attack, and neither is a 409 that asks for patience: each begins with one. */
function isWrong({ right }: Attack, { answer, isPaid, isDelivery }: Note): boolean {
  if (answer.outcome === 'broken') return right !== 'broken';
  if (answer.outcome === 'hung') return false;
  const { status } = answer;
  if (status === 200) return !isDelivery;
  if (right === 'served' && isPaid) return status !== 409;
  return status < 400 || status >= (right === 'refused' || right === 'served' ? 500 : 600);
}
