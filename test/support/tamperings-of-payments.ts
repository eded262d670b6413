import { sql } from 'kysely';
import {
  balance,
  deposit,
  forgedDeposit,
  HASH,
  NEVER,
  payment,
  type Tampering,
  tamperings,
  wallet,
} from './tampering.ts';

/** Of deposits and payments in USDC. */
export const PAYMENTS: readonly Tampering[] = [
  ...tamperings(['forbidden', 'external'], {
    'a deposit is raised in all its rows': ({ payer }) => [
      sql`update x402_payment set amount_micro_usd = 200000 where purpose = 'deposit' and payer = ${payer}`,
      sql`update transfer set amount_micro_usd = 200000 where id = ${deposit(payer)}`,
      balance(wallet(payer), 100_000),
    ],
    'one chain transfer is booked twice, as another event': ({ payer }) => [
      ...forgedDeposit(payer, sql`'0x' || repeat('6', 64)`),
      sql`
      update x402_payment set transaction_hash = original.transaction_hash, log_index = original.log_index + 1
      from x402_payment original
      where x402_payment.identifier = 'forged' and original.payer = ${payer} and original.purpose = 'deposit'
        and original.identifier <> 'forged'`,
    ],
    "a deposit becomes another payer's, with its balance": ({ payer, otherPayer }) => [
      sql`update x402_payment set payer = ${otherPayer} where purpose = 'deposit' and payer = ${payer}`,
      sql`update transfer set credit_account_id = ${wallet(otherPayer)} where id = ${deposit(payer)}`,
      sql`update prepaid_nonce set account_id = ${wallet(otherPayer)}`,
      sql`update transfer set debit_account_id = ${wallet(otherPayer)} where kind = 'spend'`,
      sql`
      update account set balance_micro_usd = case address when ${payer} then 0 else 200000 - 2 * 198 end
      where kind = 'wallet'`,
    ],
    'a settled payment names another transaction': () => [
      sql`update x402_payment set transaction_hash = ${HASH} where id = ${payment('settled')}`,
    ],
    "a settled payment has another one's receipt": () => [
      sql`
      update x402_payment set receipt = (select receipt from x402_payment where id = ${payment('settled', 'deposit')})
      where id = ${payment('settled')}`,
    ],
    'a settled payment went to another payee': () => [
      sql`update x402_payment set pay_to = '0x' || repeat('7', 40) where id = ${payment('settled')}`,
    ],
    'a settled payment is set failed, and its revenue deleted': () => [
      sql`delete from transfer where kind = 'settlement' and reference = ${payment('settled')}::text`,
      sql`
      update x402_payment set state = 'failed', failed_at = now(), settled_at = null, transaction_hash = null,
                              log_index = null, receipt = null
      where id = ${payment('settled')}`,
    ],
  }),
  ...tamperings(['external', 'external'], {
    'a deposit is forged in all its rows': ({ payer }) => forgedDeposit(payer, sql`${HASH}`),
    'a paid payment is set failed': () => [
      sql`update x402_payment set state = 'failed', failed_at = now() where id = ${payment('unknown')}`,
    ],
  }),
  ...tamperings(['forbidden', 'forbidden'], {
    'one chain transfer is booked twice, its hash in upper case': ({ payer }) =>
      forgedDeposit(payer, sql`'0x' || upper(substr(transaction_hash, 3))`),
    'one chain transfer is booked twice, its hash with a zero more': ({ payer }) =>
      forgedDeposit(payer, sql`'0x0' || substr(transaction_hash, 3)`),
  }),
  ...tamperings(['forbidden', 'unseen'], {
    'a settled payment is told to have been spoken at another cost': () => [
      sql`update x402_payment set cost_pico_usd = 1 where id = ${payment('settled')}`,
    ],
    'a refused payment is forgotten, so that its authorization could be used again': () => [
      sql`delete from x402_payment where id = ${payment('refused')}`,
    ],
    'an unknown payment becomes a reservation, to be released': () => [
      sql`
      update x402_payment set state = 'reserved', settling_at = null, lease_until = now() where id = ${payment('unknown')}`,
      sql`delete from x402_payment where state = 'reserved'`,
    ],
  }),
  ...tamperings(['forbidden', 'audit'], {
    'a settled payment names another request': () => [
      sql`update x402_payment set trace_id = gen_random_uuid() where id = ${payment('settled')}`,
    ],
    'the chain is not asked about a payment until 2099': () => [
      sql`update x402_payment set checked_at = ${NEVER} where id = ${payment('unknown')}`,
    ],
    'a payment is leased until 2099': () => [
      sql`update x402_payment set state = 'settling', lease_until = ${NEVER} where id = ${payment('unknown')}`,
    ],
  }),
];
