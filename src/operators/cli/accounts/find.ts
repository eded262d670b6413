import type { Database } from '../../../db/database.ts';
import { EXIT_USAGE, endWith, JSON_OPTION, readArguments } from '../../../lib/arguments.ts';
import { formatUsd } from '../../../lib/money.ts';
import { printable, printableJson, printTable } from '../../../lib/printable.ts';
import { isUuid } from '../../../lib/uuid.ts';
import { Processor } from '../../../payments/top-up/processor.ts';
import { ProcessorError } from '../../../payments/top-up/processor-call.ts';
import { accountsNamed, shortenSession } from '../../audit/account-names.ts';
import {
  type AccountState,
  accountsOfTrace,
  type FoundPurchase,
  findPurchases,
  readAccounts,
} from '../../audit/accounts.ts';
import { commandSettings, readWholeConfig, withDatabase } from '../command-settings.ts';
import { nameOf } from './named.ts';

const USAGE = `speechgate accounts find, by one of these:
  --email ADDRESS           the buyer's mail address; this asks the card processor
  --session ID              the processor's checkout session
  --payment-intent ID       the processor's payment, as on receipts
  --trace ID                the x-trace-id of a response
  --address 0x…             a wallet
  --secrets                 prints whole ids of accounts and sessions; anyone who has one can spend
  --json                    prints a JSON array`;
const EXIT_NOTHING = 1;
const EXIT_UNANSWERED = 2;

interface Found {
  readonly accountIds: readonly string[];
  readonly purchases: readonly FoundPurchase[];
}

const { values } = readArguments({
  usage: USAGE,
  options: {
    email: { type: 'string' },
    session: { type: 'string' },
    'payment-intent': { type: 'string' },
    trace: { type: 'string' },
    address: { type: 'string' },
    secrets: { type: 'boolean', default: false },
    ...JSON_OPTION,
  },
});
const { email, session, 'payment-intent': payment, trace, address } = values;
if ([email, session, payment, trace, address].filter((given) => given !== undefined).length !== 1) endWith(USAGE);
if (trace !== undefined && !isUuid(trace)) endWith(`${printable(trace)} is not a trace id, which is a UUID.`);
if (address !== undefined && !/^0x[0-9a-f]{40}$/i.test(address))
  endWith(`${printable(address)} is not a wallet address.`);
const settings = await commandSettings();

await withDatabase({ settings, subject: 'The accounts' }, async (db) => {
  try {
    const { accountIds, purchases } = await find(db);
    const accounts = await readAccounts(db, [...new Set([...accountIds, ...purchases.map((each) => each.accountId)])]);
    if (values.json)
      console.log(printableJson({ accounts: accounts.map(shownAccount), purchases: purchases.map(shownPurchase) }));
    else print(accounts, purchases);
    if (accounts.length === 0 && purchases.length === 0) process.exitCode = EXIT_NOTHING;
  } catch (error) {
    if (!(error instanceof ProcessorError)) throw error;
    console.error(`The card processor gave no result: ${error.message}.`);
    process.exitCode = EXIT_UNANSWERED;
  }
});

async function find(db: Database): Promise<Found> {
  if (trace !== undefined) return { accountIds: await accountsOfTrace(db, trace), purchases: [] };
  if (address !== undefined) return { accountIds: (await accountsNamed(db, address)) ?? [], purchases: [] };
  if (session !== undefined) return { accountIds: [], purchases: await findPurchases(db, { sessionIds: [session] }) };
  if (payment !== undefined) {
    const known = await findPurchases(db, { paymentIntentIds: [payment] });
    if (known.length > 0) return { accountIds: [], purchases: known };
    const found = await processor().findSessionOfPayment(payment);
    return { accountIds: [], purchases: await findPurchases(db, { sessionIds: found ? [found.id] : [] }) };
  }
  const sessions = await processor().findSessionsOfEmail(email ?? '');
  return { accountIds: [], purchases: await findPurchases(db, { sessionIds: sessions.map(({ id }) => id) }) };
}

function processor(): Processor {
  const { card } = readWholeConfig(settings, 'ask the card processor');
  if (card) return new Processor(card.secretKey, card.apiBase);
  console.error('STRIPE_SECRET_KEY is not set. Set it: only the card processor can answer this.');
  process.exit(EXIT_USAGE);
}

function shownAccount(account: AccountState) {
  const { kind, balanceMicroUsd, debtMicroUsd, createdAt, frozenAt } = account;
  return { account: nameOf(account, values.secrets), kind, balanceMicroUsd, debtMicroUsd, createdAt, frozenAt };
}

function shownPurchase({ accountId, ...purchase }: FoundPurchase) {
  const sessionId = values.secrets ? purchase.sessionId : purchase.sessionId && shortenSession(purchase.sessionId);
  return { ...purchase, sessionId, account: nameOf({ id: accountId, address: null }, values.secrets) };
}

function print(accounts: readonly AccountState[], purchases: readonly FoundPurchase[]): void {
  if (accounts.length === 0) console.error('No account was found.');
  const rows = accounts.map(shownAccount).map(({ balanceMicroUsd, debtMicroUsd, createdAt, frozenAt, ...row }) => ({
    ...row,
    balance: formatUsd(balanceMicroUsd),
    debt: formatUsd(debtMicroUsd),
    since: createdAt,
    frozen: frozenAt ?? 'no',
  }));
  printTable(rows);
  if (purchases.length > 0) console.log();
  printTable(purchases.map(shownPurchase));
}
