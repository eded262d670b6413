import type { Database } from '../db/database.ts';
import { fragment, statement } from '../db/statement.ts';
import { testPoint } from '../lib/test-point.ts';
import { type HeldBy, voidHold } from './hold.ts';
import { type Entry, insertTransfer } from './transfer.ts';

/** Why a charge was given back: its caller was told that the request failed, or the process died before the last byte. */
export type ReversalReason = 'not_delivered' | 'process_died';

const entry: Entry = {
  kind: 'reversal',
  debit: fragment`credit_account_id`,
  credit: fragment`debit_account_id`,
  amount: fragment`amount_micro_usd`,
  reference: fragment`id::text`,
  traceId: null,
};

/**
 * Gives a posted charge or spend back, whole and once, by a transfer of its own; the charge stays as it is. One
 * statement. False when there was nothing to reverse: it isn't posted, was reversed before, or its caller can fetch the
 * answer that he has lost (R60). Safe to repeat. The nonce of a spend stays spent.
 */
export async function reverseCharge(db: Database, id: bigint, reason: ReversalReason): Promise<boolean> {
  const { rows } = await statement`
    with lost as materialized (
      select stored_at from lost_answer where hold_id = ${id} for update
    ), charge as materialized (
      select id, debit_account_id, credit_account_id, amount_micro_usd from transfer
      where id = ${id} and state = 'posted' and kind in ('charge', 'spend')
        and not exists (select from lost where stored_at is not null)
    ), mark as (
      insert into reversal (transfer_id, reason) select id, ${reason} from charge
      on conflict do nothing
      returning transfer_id
    ), refund as (
      update account set balance_micro_usd = balance_micro_usd + charge.amount_micro_usd
      from mark join charge on charge.id = mark.transfer_id where account.id = charge.debit_account_id
      returning account.id
    ), booked as (
      ${insertTransfer(entry, fragment`mark join charge on charge.id = mark.transfer_id`)}
    )
    select id from refund`.execute(db);
  return rows.length > 0;
}

/** What became of a hold that was given back: `ended` when it had been voided or reversed before. */
export type GivenBack = 'voided' | 'reversed' | 'ended';

/**
 * Ends a hold that its owner tried to capture, without knowing whether it did, so that nothing is charged: void while it
 * is pending, reversed when it is posted. A capture that still runs finds the hold void, or is found posted. Safe to
 * repeat. For the owner only, and only when nothing was delivered. At most one of its two statements changes anything.
 */
export async function giveBack(db: Database, hold: HeldBy): Promise<GivenBack> {
  testPoint('capture in doubt');
  const isVoided = (await voidHold(db, hold)) !== undefined;
  const isReversed = !isVoided && (await reverseCharge(db, hold.id, 'not_delivered'));
  testPoint('given back');
  if (isVoided) return 'voided';
  return isReversed ? 'reversed' : 'ended';
}
