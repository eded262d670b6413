import { sql } from 'kysely';
import { readInvariants } from '../../src/ledger/audit.ts';

export const invariants = await readInvariants();

export const CARD_TOTAL = "the card accounts' balances are what was credited, less what was charged, and debts paid";
export const OWN_TRANSFERS = "an account's balance is the sum of its own transfers";
export const NEGATIVE = 'no balance is negative';
export const STRAY = 'both accounts of a transfer exist';
export const SIDES = 'a transfer runs between the accounts that its kind names';
export const SESSION = 'a checkout session is credited at most once, and only as a credited top-up of that amount';
export const HOLD = 'a hold has ended, is within its lease, or is owned by a live job';
export const SETTLEMENT = 'a settled payment has exactly one settlement of its amount, and no other payment has one';
export const WALLET_TOTAL = "the wallets' balances are their deposits less the pending and posted spends";
export const PAYER = 'a deposit is credited to the account of its payer';
export const NONCE = 'a nonce is spent if and only if a wallet was debited for it';
export const CHAIN = 'an authorization on the chain pays for one payment at most';
export const GUARDS = 'the triggers and constraints that guard the books are in place';
export const LEASE = 'a payment under way is within its lease';
export const CLAWBACK = 'each refund and dispute is booked once for each time that it was taken or returned, whole';
export const CLAWBACK_PURCHASE = 'a refund or dispute is one of a credited purchase, and of its account';
export const UNCLEAR =
  'what a refund or dispute took is known, or an operator decided about it, with its id in the reason';
export const INDEBTED = 'an account is marked as indebted if and only if it owes something';
export const DEBT_PAYER = 'a debt is paid by the account that owes it';
export const ADJUSTMENT = 'each adjustment matches exactly one operator action';
export const CREDITED = 'top-ups, deposits, settlements, clawbacks and adjustments are posted when created';
/** Broken and shown by test/ledger/tampering.test.ts. */
export const OF_BOOKS = new Set(invariants.filter(({ name }) => /^[4689]/.test(name)).map(({ rule }) => rule));
export const DENOMINATION = 'payments are of the network and asset that the database belongs to';
/** Broken and shown by test/jobs/take-over.test.ts. */
export const OF_JOBS = /^(a job's hold is pending while it lives|a finished job has no text)/;

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
