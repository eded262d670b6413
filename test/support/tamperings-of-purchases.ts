import { sql } from 'kysely';
import { contra } from '../../src/ledger/transfer.ts';
import { balance, NEVER, type Tampering, tamperings, topUp } from './tampering.ts';

/** Of credit that was bought by card. */
export const PURCHASES: readonly Tampering[] = [
  ...tamperings(['forbidden', 'external'], {
    'a purchase is raised in all its rows': ({ card }) => [
      sql`update top_up set amount_cents = 1900 where account_id = ${card} and state = 'credited'`,
      sql`update transfer set amount_micro_usd = 19000000 where id = ${topUp(card)}`,
      balance(card, 10_000_000),
    ],
    'a purchase vanishes in all its rows': ({ otherCard }) => [
      sql`delete from transfer where ${otherCard} in (debit_account_id, credit_account_id)`,
      sql`delete from top_up where account_id = ${otherCard}`,
      sql`update account set balance_micro_usd = 0 where id = ${otherCard}`,
    ],
  }),
  ...tamperings(['external', 'external'], {
    'a purchase is forged in all its rows': ({ card }) => [
      sql`
      insert into top_up (state, account_id, amount_cents, session_id, credited_at)
      values ('credited', ${card}, 1000, 'cs_test_forged', now())`,
      sql`
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, ended_at)
      values ('top_up', 'posted', ${contra.cardClearing}, ${card}, 10000000, 'cs_test_forged', now())`,
      balance(card, 10_000_000),
    ],
    'a paid purchase is set expired': () => [
      sql`update top_up set state = 'expired' where state = 'open' and amount_cents = 500`,
    ],
    'a paid purchase is deleted before it is credited': () => [
      sql`delete from top_up where state = 'open' and amount_cents = 500`,
    ],
  }),
  ...tamperings(['forbidden', 'audit'], {
    "a purchase's row says B, and its transfer credits A": ({ otherCard, card }) => [
      sql`update top_up set account_id = ${otherCard} where account_id = ${card} and state = 'credited'`,
    ],
    "a purchase's transfer credits another account": ({ card, otherCard }) => [
      sql`update transfer set credit_account_id = ${otherCard} where id = ${topUp(card)}`,
      balance(card, -8_000_000),
      balance(otherCard, 9_000_000),
      balance(otherCard, -1_000_000),
    ],
    "the transfer of a purchase is another session's": ({ card }) => [
      sql`update transfer set reference = 'cs_test_other' where id = ${topUp(card)}`,
    ],
    'an open purchase is looked at in 2099': () => [
      sql`update top_up set next_check_at = ${NEVER} where state = 'open'`,
    ],
    "the processor's list counts as read until 2099": () => [sql`update processor_list set read_until = ${NEVER}`],
  }),
];
