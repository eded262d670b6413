import { sql } from 'kysely';
import { contra } from '../../src/ledger/transfer.ts';
import { balance, NEVER, type Tampering, topUp } from './tampering.ts';

/** Of credit that was bought by card. */
export const PURCHASES: readonly Tampering[] = [
  {
    name: 'a purchase is raised in all its rows',
    fates: ['forbidden', 'external'],
    statements: ({ card }) => [
      sql`update top_up set amount_cents = 1900 where account_id = ${card} and state = 'credited'`,
      sql`update transfer set amount_micro_usd = 19000000 where id = ${topUp(card)}`,
      balance(card, 10_000_000),
    ],
  },
  {
    name: 'a purchase is forged in all its rows',
    fates: ['external', 'external'],
    statements: ({ card }) => [
      sql`
      insert into top_up (state, account_id, amount_cents, session_id, credited_at)
      values ('credited', ${card}, 1000, 'cs_test_forged', now())`,
      sql`
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, ended_at)
      values ('top_up', 'posted', ${contra.cardClearing}, ${card}, 10000000, 'cs_test_forged', now())`,
      balance(card, 10_000_000),
    ],
  },
  {
    name: 'a purchase vanishes in all its rows',
    fates: ['forbidden', 'external'],
    statements: ({ otherCard }) => [
      sql`delete from transfer where ${otherCard} in (debit_account_id, credit_account_id)`,
      sql`delete from top_up where account_id = ${otherCard}`,
      sql`update account set balance_micro_usd = 0 where id = ${otherCard}`,
    ],
  },
  {
    name: "a purchase's row says B, and its transfer credits A",
    fates: ['forbidden', 'audit'],
    statements: ({ otherCard, card }) => [
      sql`update top_up set account_id = ${otherCard} where account_id = ${card} and state = 'credited'`,
    ],
  },
  {
    name: "a purchase's transfer credits another account",
    fates: ['forbidden', 'audit'],
    statements: ({ card, otherCard }) => [
      sql`update transfer set credit_account_id = ${otherCard} where id = ${topUp(card)}`,
      balance(card, -8_000_000),
      balance(otherCard, 9_000_000),
      balance(otherCard, -1_000_000),
    ],
  },
  {
    name: "the transfer of a purchase is another session's",
    fates: ['forbidden', 'audit'],
    statements: ({ card }) => [sql`update transfer set reference = 'cs_test_other' where id = ${topUp(card)}`],
  },
  {
    name: 'a paid purchase is set expired',
    fates: ['external', 'external'],
    statements: () => [sql`update top_up set state = 'expired' where state = 'open' and amount_cents = 500`],
  },
  {
    name: 'a paid purchase is deleted before it is credited',
    fates: ['external', 'external'],
    statements: () => [sql`delete from top_up where state = 'open' and amount_cents = 500`],
  },
  {
    name: 'an open purchase is looked at in 2099',
    fates: ['forbidden', 'audit'],
    statements: () => [sql`update top_up set next_check_at = ${NEVER} where state = 'open'`],
  },
  {
    name: "the processor's list counts as read until 2099",
    fates: ['forbidden', 'audit'],
    statements: () => [sql`update processor_list set read_until = ${NEVER}`],
  },
];
