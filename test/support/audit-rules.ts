import { sql } from 'kysely';
import { readInvariants } from '../../src/ledger/audit.ts';

export const invariants = await readInvariants();

export const CARD_TOTAL = 'all card balances together equal credits minus charges and debt payments';
export const OWN_TRANSFERS = 'the balance of each account is the sum of its transfers';
export const NEGATIVE = 'no account has a negative balance';
export const STRAY = 'both accounts of each transfer exist';
export const SIDES = 'each transfer is between accounts that its kind allows';
export const SESSION = 'each paid checkout session is credited once, with the amount of its purchase';
export const HOLD = 'each pending hold has an unexpired lease or an unfinished job';
export const SETTLEMENT = 'each settled USDC payment is booked once with its amount, and no other payment is booked';
export const WALLET_TOTAL = 'all wallet balances together equal deposits minus pending and posted spends';
export const PAYER = 'each deposit is credited to the account of its payer';
export const NONCE = 'each used nonce has a prepaid spend, and each recent spend has a used nonce';
export const CHAIN = 'each authorization on the chain pays for at most one payment';
export const GUARDS = 'all triggers and constraints that protect the ledger are in place';
export const LEASE = 'each USDC payment in progress has an unexpired lease';
export const CLAWBACK =
  'each refund and dispute is booked in full, once for each time that money was taken or returned';
export const CLAWBACK_PURCHASE = 'each refund and dispute belongs to a credited purchase of the same account';
export const UNCLEAR = "each refund and dispute is in USD with a known status, or an operator's reason names its id";
export const INDEBTED = 'exactly the accounts with a debt are marked as indebted';
export const DEBT_PAYER = 'each debt is paid by the account that owes it';
export const ADJUSTMENT = 'each adjustment matches exactly one action of an operator';
export const CREDITED = 'only charges and spends can be pending; all other transfers are posted when created';
/** Broken and shown by test/ledger/tampering.test.ts. */
export const OF_BOOKS = new Set(invariants.filter(({ name }) => /^[4689]/.test(name)).map(({ rule }) => rule));
export const DENOMINATION = 'each USDC payment uses the network and asset of this database';
/** Broken and shown by test/jobs/take-over.test.ts. */
export const OF_JOBS = /^(the hold of each job has the state|each unfinished job has its text)/;

export const PAYER_ADDRESS = `0x${'a'.repeat(40)}`;
export const HASH = `0x${'1'.repeat(64)}`;
export const OTHER_ADDRESS = `0x${'b'.repeat(40)}`;
export const payer = sql`(select id from account where address = ${PAYER_ADDRESS})`;
export const other = sql`(select id from account where address = ${OTHER_ADDRESS})`;
export const spend = (nonce: string) => sql`kind = 'spend' and reference = ${nonce} and debit_account_id = ${payer}`;
export const payment = (identifier: string) =>
  sql`(select id::text from x402_payment where identifier = ${identifier})`;

export const unsettle = (identifier: string) => sql`
  update x402_payment set state = 'unknown', settled_at = null, transaction_hash = null, log_index = null,
    receipt = null
  where identifier = ${identifier}`;
