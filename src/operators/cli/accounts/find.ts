import type { Database } from '../../../db/database.ts';
import { type Arguments, JSON_OPTION, UsageError } from '../../../lib/arguments.ts';
import { printable, printableJson, tableLines } from '../../../lib/printable.ts';
import { isUuid } from '../../../lib/uuid.ts';
import { Processor } from '../../../payments/top-up/processor.ts';
import { ProcessorError } from '../../../payments/top-up/processor-call.ts';
import {
  type AccountState,
  accountsNamed,
  accountsOfTrace,
  type FoundPurchase,
  findPurchases,
  nameOf,
  readAccounts,
  shortenSession,
} from '../../audit/accounts.ts';
import {
  commandSettings,
  defineCommand,
  EXIT_FAILED,
  EXIT_UNANSWERED,
  ExitError,
  invalidSettings,
  printLines,
  readWholeConfig,
  withDatabase,
} from '../command.ts';

const USAGE = `speechgate admin accounts find --email ADDRESS | --session ID | --payment-intent ID | --trace ID | --address 0x…
  --email ADDRESS           the buyer's email address; this asks the card processor
  --session ID              the processor's id of the checkout session, such as cs_live_…
  --payment-intent ID       the processor's id of the payment, such as pi_…
  --trace ID                the x-trace-id of a response
  --address 0x…             a wallet
  --secrets                 prints whole ids of accounts and sessions. Keep them secret: they allow spending
  --json                    prints a JSON object`;

const OPTIONS = {
  email: { type: 'string' },
  session: { type: 'string' },
  'payment-intent': { type: 'string' },
  trace: { type: 'string' },
  address: { type: 'string' },
  secrets: { type: 'boolean', default: false },
  ...JSON_OPTION,
} as const;

type Wanted = Arguments<typeof OPTIONS>['values'];

interface Found {
  readonly accountIds: readonly string[];
  readonly purchases: readonly FoundPurchase[];
}

export const findCommand = defineCommand({
  usage: USAGE,
  options: OPTIONS,
  run: async (wanted, _words, context) => {
    const { email, session, 'payment-intent': payment, trace, address, secrets, json } = wanted;
    if ([email, session, payment, trace, address].filter((given) => given !== undefined).length !== 1)
      throw new UsageError('Give exactly one of --email, --session, --payment-intent, --trace and --address.');
    if (trace !== undefined && !isUuid(trace))
      throw new UsageError(
        `--trace ${printable(trace)} is not a trace id. Give the UUID in the x-trace-id header of a response.`,
      );
    if (address !== undefined && !/^0x[0-9a-f]{40}$/i.test(address))
      throw new UsageError(`--address ${printable(address)} is not a wallet address. Give 0x and 40 hex digits.`);
    const settings = await commandSettings(context);
    return withDatabase(context, { settings, subject: 'The accounts' }, async (db) => {
      const { accountIds, purchases } = await find(db, wanted, settings).catch(throwUnanswered);
      const ids = new Set([...accountIds, ...purchases.map((each) => each.accountId)]);
      const accounts = await readAccounts(db, [...ids]);
      const shownAccounts = accounts.map((account) => shownAccount(account, secrets));
      const shownPurchases = purchases.map((purchase) => shownPurchase(purchase, secrets));
      if (json) context.console.log(printableJson({ accounts: shownAccounts, purchases: shownPurchases }));
      else {
        if (accounts.length === 0) context.console.error('No account matches this option. Check its value.');
        printLines(context, tableLines(shownAccounts.map(columnsOf)));
        printLines(context, purchases.length > 0 ? ['', ...tableLines(shownPurchases)] : []);
      }
      return accounts.length === 0 && purchases.length === 0 ? EXIT_FAILED : 0;
    });
  },
});

function throwUnanswered(error: unknown): never {
  if (!(error instanceof ProcessorError)) throw error;
  throw new ExitError(
    `The search at the card processor failed: ${error.message}. Run the command again later.`,
    EXIT_UNANSWERED,
  );
}

async function find(db: Database, wanted: Wanted, settings: NodeJS.ProcessEnv): Promise<Found> {
  const { email, session, 'payment-intent': payment, trace, address } = wanted;
  if (trace !== undefined) return { accountIds: await accountsOfTrace(db, trace), purchases: [] };
  if (address !== undefined) return { accountIds: (await accountsNamed(db, address)) ?? [], purchases: [] };
  if (session !== undefined) return { accountIds: [], purchases: await findPurchases(db, { sessionIds: [session] }) };
  if (payment !== undefined) {
    const known = await findPurchases(db, { paymentIntentIds: [payment] });
    if (known.length > 0) return { accountIds: [], purchases: known };
    const found = await (await processorOf(settings)).findSessionOfPayment(payment);
    return { accountIds: [], purchases: await findPurchases(db, { sessionIds: found ? [found.id] : [] }) };
  }
  const sessions = await (await processorOf(settings)).findSessionsOfEmail(email ?? '');
  return { accountIds: [], purchases: await findPurchases(db, { sessionIds: sessions.map(({ id }) => id) }) };
}

async function processorOf(settings: NodeJS.ProcessEnv): Promise<Processor> {
  const { card } = await readWholeConfig(settings, 'ask the card processor');
  if (card) return new Processor(card.secretKey, card.apiBase);
  throw invalidSettings('STRIPE_SECRET_KEY is not set. Set it, because only the card processor can find this account.');
}

export function shownAccount(account: AccountState, secrets: boolean) {
  const { kind, balanceMicroUsd, debtMicroUsd, createdAt, frozenAt } = account;
  return { account: nameOf(account, secrets), kind, balanceMicroUsd, debtMicroUsd, createdAt, frozenAt };
}

function shownPurchase({ accountId, ...purchase }: FoundPurchase, secrets: boolean) {
  const sessionId = secrets ? purchase.sessionId : purchase.sessionId && shortenSession(purchase.sessionId);
  return { ...purchase, sessionId, account: nameOf({ id: accountId, address: null }, secrets) };
}

export function columnsOf({ createdAt, frozenAt, ...row }: ReturnType<typeof shownAccount>) {
  return { ...row, since: createdAt, frozen: frozenAt ?? 'no' };
}
