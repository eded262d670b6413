import type { Database } from '../../../db/database.ts';
import { readUsd, UsageError } from '../../../lib/arguments.ts';
import { formatUsd, MICRO_USD_PER_CENT } from '../../../lib/money.ts';
import { printable } from '../../../lib/printable.ts';
import { Clawbacks } from '../../../payments/top-up/clawbacks.ts';
import { creditPart, Processor } from '../../../payments/top-up/processor.ts';
import { ProcessorError, RATE_LIMITED } from '../../../payments/top-up/processor-call.ts';
import type { ProcessorClawback } from '../../../payments/top-up/processor-clawbacks.ts';
import { Purchases } from '../../../payments/top-up/purchases.ts';
import {
  type CreditedPurchase,
  findCreditedPurchase,
  refundPurchase,
} from '../../../payments/top-up/refund-purchase.ts';
import { readAccounts, shortenAccount } from '../../audit/accounts.ts';
import {
  commandSettings,
  defineCommand,
  EXIT_UNANSWERED,
  ExitError,
  invalidSettings,
  readWholeConfig,
  withDatabase,
} from '../command.ts';
import {
  ACTION_OPTIONS,
  ACTION_USAGE,
  confirm,
  KEY_OPTION,
  KEY_USAGE,
  readKey,
  readOperatorAction,
} from '../operator-options.ts';

const USAGE = `speechgate admin accounts refund PURCHASE --reason TEXT
  PURCHASE         the id of the purchase or of its checkout session
  --amount USD     the amount to refund, such as 2.50 (default: all that is left)${ACTION_USAGE}${KEY_USAGE}`;

const KEY_FIX = 'Set STRIPE_SECRET_KEY to a valid key that may make refunds.';
const AMOUNT_FIX = 'If the cause is the amount, check for earlier refunds and a too large --amount.';
const FIXES: Readonly<Record<number, string>> = {
  401: KEY_FIX,
  403: KEY_FIX,
  404: 'Set STRIPE_SECRET_KEY to a key of the account that made the sale.',
};

export const refundCommand = defineCommand({
  usage: USAGE,
  options: { ...ACTION_OPTIONS, ...KEY_OPTION, amount: { type: 'string' } },
  words: ['PURCHASE'],
  run: async (values, [named = ''], context) => {
    const amountCents = values.amount === undefined ? undefined : readCents(values.amount);
    const operatorAction = readOperatorAction(values, context.env);
    const settings = await commandSettings(context);
    const { card, baseUrl, serviceName } = await readWholeConfig(settings, 'refund');
    if (!card) {
      throw invalidSettings(
        'STRIPE_SECRET_KEY is not set, so the card processor can make no refund. Nothing was refunded: set the key first.',
      );
    }
    const processor = new Processor(card.secretKey, card.apiBase);
    const look = { settings, subject: 'The purchase', use: 'changed', maxConnections: 2 } as const;
    return withDatabase(context, look, async (db) => {
      const purchase = await findCreditedPurchase(db, named);
      if (!purchase) {
        throw new ExitError(
          'PURCHASE is not the id or session of a credited purchase. Nothing was refunded: look it up with speechgate admin accounts find.',
        );
      }
      const key = readKey(context, values.key);
      await confirm(context, await describe(db, purchase, amountCents), values.yes);
      const clawbacks = new Clawbacks(db, processor, new Purchases(db, processor, { baseUrl, serviceName }));
      const request = { purchase, amountCents, key };
      const result = await refundPurchase({ db, processor, clawbacks }, request, operatorAction).catch(throwUnanswered);
      switch (result.outcome) {
        case 'refunded': {
          const { refund, unclear } = result;
          if (unclear) context.console.error(`${printable(unclear)}.`);
          context.console.log(await lineOf(db, purchase.accountId, refund));
          return 0;
        }
        case 'key_of_another':
          throw new UsageError(
            '--key was used for another change. Nothing was refunded: run the command without --key for a new refund.',
          );
        case 'refused':
          throw new ExitError(
            `Nothing was refunded: ${result.error.message}. ${FIXES[result.error.status ?? 0] ?? AMOUNT_FIX}`,
          );
      }
    });
  },
});

async function describe(
  db: Database,
  { id, accountId, creditedAt, ...bought }: CreditedPurchase,
  amountCents: number | undefined,
): Promise<string> {
  const [account] = await readAccounts(db, [accountId]);
  const balance = account?.balanceMicroUsd ?? 0n;
  const [name, has] = [shortenAccount(accountId), formatUsd(balance)];
  const purchase = `of purchase ${id} (${usd(bought.amountCents + bought.taxCents)} USD on ${creditedAt.toISOString().slice(0, 10)}) to its card`;
  if (amountCents === undefined)
    return `This will refund all that is left ${purchase}. It is taken from the ${has} USD of ${name}; if that is too little, the rest becomes a debt of the account`;
  const left = balance - BigInt(creditPart(amountCents, bought)) * MICRO_USD_PER_CENT;
  const after = left < 0n ? `0.000000, and it will owe ${formatUsd(-left)} USD more` : formatUsd(left);
  return `This will refund ${usd(amountCents)} USD ${purchase}, from ${name}: balance ${has} -> ${after}`;
}

const usd = (cents: number): string => formatUsd(BigInt(cents) * MICRO_USD_PER_CENT);

function throwUnanswered(error: unknown): never {
  if (!(error instanceof ProcessorError)) throw error;
  const when = error.status === RATE_LIMITED ? 'later' : 'again';
  throw new ExitError(
    `It is unknown whether money was refunded: ${error.message}. Run the command ${when} with the same --key, which refunds at most once.`,
    EXIT_UNANSWERED,
  );
}

async function lineOf(db: Database, accountId: string, refund: ProcessorClawback): Promise<string> {
  const [account] = await readAccounts(db, [accountId]);
  const left = `${formatUsd(account?.balanceMicroUsd ?? 0n)} USD and owes ${formatUsd(account?.debtMicroUsd ?? 0n)} USD`;
  const refunded = `${printable(refund.id)} (${refund.status}) refunds ${usd(refund.amountCents)} USD`;
  return `${refunded}; ${shortenAccount(accountId)} has ${left}`;
}

function readCents(text: string): number {
  const microUsd = readUsd(text, '--amount');
  if (microUsd > 0n && microUsd % MICRO_USD_PER_CENT === 0n) return Number(microUsd / MICRO_USD_PER_CENT);
  throw new UsageError(`--amount must be whole cents above 0, such as 2.50, not ${text}. Nothing was refunded.`);
}
