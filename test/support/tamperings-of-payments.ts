import { sql } from 'kysely';
import { balance, deposit, forgedDeposit, HASH, NEVER, payment, type Tampering, wallet } from './tampering.ts';

/** Of deposits and payments in USDC. */
export const PAYMENTS: readonly Tampering[] = [
  {
    name: 'a deposit is raised in all its rows',
    fates: ['forbidden', 'external'],
    statements: ({ payer }) => [
      sql`update x402_payment set amount_micro_usd = 200000 where purpose = 'deposit' and payer = ${payer}`,
      sql`update transfer set amount_micro_usd = 200000 where id = ${deposit(payer)}`,
      balance(wallet(payer), 100_000),
    ],
  },
  {
    name: 'a deposit is forged in all its rows',
    fates: ['external', 'external'],
    statements: ({ payer }) => forgedDeposit(payer, sql`${HASH}`),
  },
  {
    name: 'one chain transfer is booked twice, its hash in upper case',
    fates: ['forbidden', 'forbidden'],
    statements: ({ payer }) => forgedDeposit(payer, sql`'0x' || upper(substr(transaction_hash, 3))`),
  },
  {
    name: 'one chain transfer is booked twice, its hash with a zero more',
    fates: ['forbidden', 'forbidden'],
    statements: ({ payer }) => forgedDeposit(payer, sql`'0x0' || substr(transaction_hash, 3)`),
  },
  {
    name: 'one chain transfer is booked twice, as another event',
    fates: ['forbidden', 'external'],
    statements: ({ payer }) => [
      ...forgedDeposit(payer, sql`'0x' || repeat('6', 64)`),
      sql`
      update x402_payment set transaction_hash = original.transaction_hash, log_index = original.log_index + 1
      from x402_payment original
      where x402_payment.identifier = 'forged' and original.payer = ${payer} and original.purpose = 'deposit'
        and original.identifier <> 'forged'`,
    ],
  },
  {
    name: "a deposit becomes another payer's, with its balance",
    fates: ['forbidden', 'external'],
    statements: ({ payer, otherPayer }) => [
      sql`update x402_payment set payer = ${otherPayer} where purpose = 'deposit' and payer = ${payer}`,
      sql`update transfer set credit_account_id = ${wallet(otherPayer)} where id = ${deposit(payer)}`,
      sql`update prepaid_nonce set account_id = ${wallet(otherPayer)}`,
      sql`update transfer set debit_account_id = ${wallet(otherPayer)} where kind = 'spend'`,
      sql`
      update account set balance_micro_usd = case address when ${payer} then 0 else 200000 - 2 * 198 end
      where kind = 'wallet'`,
    ],
  },
  {
    name: 'a settled payment names another transaction',
    fates: ['forbidden', 'external'],
    statements: () => [sql`update x402_payment set transaction_hash = ${HASH} where id = ${payment('settled')}`],
  },
  {
    name: "a settled payment has another one's receipt",
    fates: ['forbidden', 'external'],
    statements: () => [
      sql`
      update x402_payment set receipt = (select receipt from x402_payment where id = ${payment('settled', 'deposit')})
      where id = ${payment('settled')}`,
    ],
  },
  {
    name: 'a settled payment is told to have been spoken at another cost',
    fates: ['forbidden', 'unseen'],
    statements: () => [sql`update x402_payment set cost_pico_usd = 1 where id = ${payment('settled')}`],
  },
  {
    name: 'a settled payment names another request',
    fates: ['forbidden', 'audit'],
    statements: () => [sql`update x402_payment set trace_id = gen_random_uuid() where id = ${payment('settled')}`],
  },
  {
    name: 'a settled payment went to another payee',
    fates: ['forbidden', 'external'],
    statements: () => [sql`update x402_payment set pay_to = '0x' || repeat('7', 40) where id = ${payment('settled')}`],
  },
  {
    name: 'a paid payment is set failed',
    fates: ['external', 'external'],
    statements: () => [
      sql`update x402_payment set state = 'failed', failed_at = now() where id = ${payment('unknown')}`,
    ],
  },
  {
    name: 'a settled payment is set failed, and its revenue deleted',
    fates: ['forbidden', 'external'],
    statements: () => [
      sql`delete from transfer where kind = 'settlement' and reference = ${payment('settled')}::text`,
      sql`
      update x402_payment set state = 'failed', failed_at = now(), settled_at = null, transaction_hash = null,
                              log_index = null, receipt = null
      where id = ${payment('settled')}`,
    ],
  },
  {
    name: 'a refused payment is forgotten, so that its authorization could be used again',
    fates: ['forbidden', 'unseen'],
    statements: () => [sql`delete from x402_payment where id = ${payment('refused')}`],
  },
  {
    name: 'an unknown payment becomes a reservation, to be released',
    fates: ['forbidden', 'unseen'],
    statements: () => [
      sql`
      update x402_payment set state = 'reserved', settling_at = null, lease_until = now() where id = ${payment('unknown')}`,
      sql`delete from x402_payment where state = 'reserved'`,
    ],
  },
  {
    name: 'the chain is not asked about a payment until 2099',
    fates: ['forbidden', 'audit'],
    statements: () => [sql`update x402_payment set checked_at = ${NEVER} where id = ${payment('unknown')}`],
  },
  {
    name: 'a payment is leased until 2099',
    fates: ['forbidden', 'audit'],
    statements: () => [
      sql`update x402_payment set state = 'settling', lease_until = ${NEVER} where id = ${payment('unknown')}`,
    ],
  },
];
