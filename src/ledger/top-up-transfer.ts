import { type Fragment, fragment } from '../db/statement.ts';
import { contra } from './contra.ts';
import { isOfMode } from './instance.ts';
import { type Entry, insertTransfer } from './transfer.ts';

/** Money that was received by card. */
export interface CardMoney {
  readonly amountMicroUsd: bigint;
  readonly sessionId: string;
  /** The session's mode, to which an account belongs from its first credit on. */
  readonly livemode: boolean;
}

/**
 * Credits a card account (R16), which comes into being with its first credit: ends the `with` of a statement, and
 * returns `account_id`, its new `balance`, and whether it `is_indebted`.
 * @param paid names rows with `account_id`, none of them when there is nothing to credit
 */
export function creditCard(paid: Fragment, { amountMicroUsd, sessionId, livemode }: CardMoney): Fragment {
  const entry: Entry = {
    kind: 'top_up',
    debit: contra.cardClearing,
    credit: fragment`account_id`,
    amount: amountMicroUsd,
    reference: sessionId,
    traceId: null,
  };
  return fragment`
    entry as (
      ${insertTransfer(entry, paid)}
      returning credit_account_id
    )
    insert into account (id, kind, livemode, balance_micro_usd)
    select credit_account_id, 'card', ${livemode}::boolean, ${amountMicroUsd} from entry
    on conflict (id) do update set balance_micro_usd = account.balance_micro_usd + excluded.balance_micro_usd
    returning id as account_id, balance_micro_usd as balance, is_indebted`;
}

/** Whether the account exists and is of the other mode of the card processor. */
export const isOfOtherMode = (accountId: string | Fragment, livemode: boolean): Fragment => fragment`
  exists (select from account where account.id = ${accountId}::uuid and not ${isOfMode(livemode)})`;

/** The balance of an account, null when there is none. */
export const balanceOf = (accountId: Fragment): Fragment =>
  fragment`(select balance_micro_usd from account where account.id = ${accountId})`;
