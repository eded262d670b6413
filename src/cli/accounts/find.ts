import { type AccountState, readAccounts } from '../../audit/account-history.ts';
import { accountsNamed, shortenSession } from '../../audit/account-names.ts';
import { accountsOfTrace, type FoundPurchase, findPurchases } from '../../audit/find-accounts.ts';
import type { Database } from '../../db/database.ts';
import { formatUsd } from '../../lib/money.ts';
import { isUuid } from '../../lib/uuid.ts';
import { Processor } from '../../top-up/processor.ts';
import { ProcessorError } from '../../top-up/processor-call.ts';
import { EXIT_USAGE, endWith, readArguments } from '../arguments.ts';
import { commandSettings } from '../command-settings.ts';
import { look } from '../look.ts';
import { printable, printableJson } from '../printable.ts';
import { printableLine } from '../table-line.ts';
import { readWholeConfig } from '../whole-config.ts';
import { nameOf } from './named.ts';

const USAGE = `speechgate accounts find, by one of these:
  --email ADDRESS           that the buyer gave to the card processor, which is asked
  --session ID              of the processor's checkout
  --payment-intent ID       of the processor, as it stands on receipts
  --trace ID                the x-trace-id of an answer
  --address 0x…             of a wallet
  --secrets                 show ids of accounts and sessions whole: whoever has them can spend
  --json                    print it as a JSON array`;
const EXIT_NOTHING = 1;
const EXIT_UNANSWERED = 2;
const ACCOUNT_COLUMNS = [42, 7, 16, 16, 24];
const PURCHASE_COLUMNS = [24, 36, 9, 8, 20];

interface Found {
  readonly accountIds: readonly string[];
  readonly purchases: readonly FoundPurchase[];
}

const { values } = readArguments(
  {
    options: {
      ...{ email: { type: 'string' }, session: { type: 'string' }, 'payment-intent': { type: 'string' } },
      ...{ trace: { type: 'string' }, address: { type: 'string' } },
      ...{ secrets: { type: 'boolean', default: false }, json: { type: 'boolean', default: false } },
    },
  },
  USAGE,
);
const { email, session, 'payment-intent': payment, trace, address } = values;
if ([email, session, payment, trace, address].filter((given) => given !== undefined).length !== 1) endWith(USAGE);
if (trace !== undefined && !isUuid(trace)) endWith(`${printable(trace)} is no trace id, which is a UUID.`);
if (address !== undefined && !/^0x[0-9a-f]{40}$/i.test(address))
  endWith(`${printable(address)} is no address of a wallet.`);
const settings = await commandSettings();

await look({ settings, subject: 'The accounts' }, async (db) => {
  try {
    const { accountIds, purchases } = await find(db);
    const accounts = await readAccounts(db, [...new Set([...accountIds, ...purchases.map((each) => each.accountId)])]);
    if (values.json) console.log(printableJson(jsonOf(accounts, purchases)));
    else print(accounts, purchases);
    if (accounts.length === 0 && purchases.length === 0) process.exitCode = EXIT_NOTHING;
  } catch (error) {
    if (!(error instanceof ProcessorError)) throw error;
    console.error(`The card processor can't be asked: ${error.message}.`);
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
  console.error('STRIPE_SECRET_KEY is not set: only the card processor knows that.');
  process.exit(EXIT_USAGE);
}

function sessionOf({ sessionId }: FoundPurchase): string | null {
  return sessionId === null || values.secrets ? sessionId : shortenSession(sessionId);
}

function print(accounts: readonly AccountState[], purchases: readonly FoundPurchase[]): void {
  if (accounts.length === 0) console.error('No account was found.');
  else console.log(printableLine(ACCOUNT_COLUMNS, ['account', 'kind', 'balance', 'debt', 'since', 'frozen']));
  for (const account of accounts) {
    const { kind, balanceMicroUsd, debtMicroUsd, createdAt, frozenAt } = account;
    const cells = [nameOf(account, values.secrets), kind, formatUsd(balanceMicroUsd), formatUsd(debtMicroUsd)];
    console.log(printableLine(ACCOUNT_COLUMNS, [...cells, createdAt.toISOString(), frozenAt?.toISOString() ?? 'no']));
  }
  if (purchases.length === 0) return;
  console.log(`\n${printableLine(PURCHASE_COLUMNS, ['at', 'purchase', 'state', 'cents', 'session', 'account'])}`);
  for (const purchase of purchases) {
    const { at, id, state, amountCents, accountId } = purchase;
    const cells = [at.toISOString(), id, state, String(amountCents), sessionOf(purchase) ?? ''];
    console.log(printableLine(PURCHASE_COLUMNS, [...cells, nameOf({ id: accountId, address: null }, values.secrets)]));
  }
}

function jsonOf(accounts: readonly AccountState[], purchases: readonly FoundPurchase[]) {
  return {
    accounts: accounts.map((account) => ({
      ...{
        account: nameOf(account, values.secrets),
        kind: account.kind,
        balanceMicroUsd: Number(account.balanceMicroUsd),
      },
      ...{ debtMicroUsd: Number(account.debtMicroUsd), frozenAt: account.frozenAt, createdAt: account.createdAt },
    })),
    purchases: purchases.map(({ accountId, ...purchase }) => ({
      ...{ ...purchase, sessionId: sessionOf({ accountId, ...purchase }) },
      account: nameOf({ id: accountId, address: null }, values.secrets),
    })),
  };
}
