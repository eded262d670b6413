import { type Fragment, fragment } from '../db/statement.ts';
import { contra } from './contra.ts';
import { type Entry, insertTransfer } from './transfer.ts';

/**
 * Books the amount of settled payments, for the `with` of the statement that settles them: as revenue, or as the deposit
 * of its payer, whose wallet account comes into being with the first one.
 * @param payment names rows with `id`, `purpose`, `payer` (address in lower case), `amount_micro_usd`, `trace_id`,
 *   `model`, `upstream` and `cost_pico_usd`
 */
export function bookPayment(payment: Fragment): Fragment {
  const entry = {
    debit: contra.usdcClearing,
    amount: fragment`${payment}.amount_micro_usd`,
    reference: fragment`${payment}.id::text`,
    traceId: fragment`${payment}.trace_id`,
  };
  const revenue: Entry = { ...entry, kind: 'settlement', credit: contra.usdcRevenue, isSpoken: true };
  const deposit: Entry = { ...entry, kind: 'deposit', credit: fragment`wallet_id` };
  return fragment`
    revenue as (
      ${insertTransfer(revenue, fragment`${payment} where purpose = 'speech'`)}
    ), wallet as (
      insert into account (kind, address, balance_micro_usd)
      select 'wallet', payer, amount_micro_usd from ${payment} where purpose = 'deposit'
      on conflict (address) do update set balance_micro_usd = account.balance_micro_usd + excluded.balance_micro_usd
      returning id as wallet_id, address
    ), deposit as (
      ${insertTransfer(deposit, fragment`${payment} join wallet on address = payer where purpose = 'deposit'`)}
    )`;
}
