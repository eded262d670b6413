import { sql } from 'kysely';
import { contra } from '../../src/ledger/transfer.ts';
import {
  CLAWBACK,
  CLAWBACK_PURCHASE,
  CREDITED,
  DEBT_PAYER,
  HOLD,
  INDEBTED,
  OWN_TRANSFERS,
  UNCLEAR,
} from './audit-rules.ts';
import { type Corruption, corruptions } from './corruptions-of-balances.ts';

const debtor = sql`(select account_id from clawback where id = 're_1')`;
const debt = sql`(select id from account where kind = 'debt')`;

/** Of refunds, disputes and debts. The ledger has a refund re_1 and a dispute dp_1 of one purchase, and a debt left. */
export const CORRUPTIONS_OF_CLAWBACKS: Corruption[] = [
  ...corruptions([CLAWBACK], {
    'a refund that is not booked': () => [
      sql`delete from transfer where reference = 're_1'`,
      sql`update account set balance_micro_usd = balance_micro_usd - 1000000 where id = ${debt}`,
    ],
    'a refund that is booked twice': () => [
      sql`insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, ended_at)
      values ('refund', 'posted', ${debt}, ${contra.cardClearing}, 1000000, 're_1', now())`,
      sql`update account set balance_micro_usd = balance_micro_usd + 1000000 where id = ${debt}`,
    ],
    'a refund of half its amount': () => [
      sql`update transfer set amount_micro_usd = 500000 where reference = 're_1'`,
      sql`update account set balance_micro_usd = balance_micro_usd - 500000 where id = ${debt}`,
    ],
    'a dispute that is won, and whose money is not returned': () => [
      sql`update clawback set state = 'returned' where id = 'dp_1'`,
    ],
  }),
  ...corruptions([CLAWBACK, CLAWBACK_PURCHASE], {
    'a dispute of a purchase of somebody else': (account) => [
      sql`update clawback set account_id = ${account} where id = 'dp_1'`,
    ],
  }),
  ...corruptions([UNCLEAR], {
    'a refund whose status nobody knows': () => [sql`update clawback set is_status_known = false where id = 're_1'`],
  }),
  ...corruptions([INDEBTED], {
    'a debtor who may spend again': () => [sql`update account set is_indebted = false where id = ${debtor}`],
  }),
  ...corruptions([OWN_TRANSFERS, INDEBTED], {
    'a debt that is forgotten': () => [sql`update account set balance_micro_usd = 0 where id = ${debt}`],
  }),
  ...corruptions([DEBT_PAYER], {
    'a debt that somebody else has paid': (account) => [
      sql`update transfer set debit_account_id = ${account} where position = (select max(position) from transfer where kind = 'debt_payment')`,
      sql`update account set balance_micro_usd = balance_micro_usd + 4000000 where id = ${debtor}`,
      sql`update account set balance_micro_usd = balance_micro_usd - 4000000 where id = ${account}`,
    ],
  }),
  ...corruptions([HOLD, CREDITED], {
    'a refund that is still on its way': () => [
      sql`update transfer set state = 'pending', ended_at = null where reference = 're_1'`,
    ],
  }),
];
