import type { Database } from '../../../db/database.ts';
import { EXIT_USAGE, endWith, readArguments } from '../../../lib/arguments.ts';
import { formatCents, formatUsd } from '../../../lib/money.ts';
import { printable } from '../../../lib/printable.ts';
import { Clawbacks } from '../../../payments/top-up/clawbacks.ts';
import { Processor } from '../../../payments/top-up/processor.ts';
import { ProcessorError } from '../../../payments/top-up/processor-call.ts';
import { Purchases } from '../../../payments/top-up/purchases.ts';
import { findCreditedPurchase, refundPurchase } from '../../../payments/top-up/refund-purchase.ts';
import { shortenAccount } from '../../audit/account-names.ts';
import { readAccounts } from '../../audit/accounts.ts';
import { commandSettings, readWholeConfig, withDatabase } from '../command-settings.ts';
import {
  ACTION_OPTIONS,
  ACTION_USAGE,
  confirmed,
  KEY_OPTION,
  KEY_USAGE,
  readKey,
  readOperatorAction,
} from '../operator-options.ts';

const USAGE = `speechgate accounts refund PURCHASE --reason TEXT
  PURCHASE         the id of the purchase or of its checkout session
  --amount CENTS   the amount to refund (default: all that is left)${ACTION_USAGE}${KEY_USAGE}`;
const EXIT_REFUSED = 1;
const EXIT_UNANSWERED = 2;

const { values, words } = readArguments({
  usage: USAGE,
  options: { ...ACTION_OPTIONS, ...KEY_OPTION, amount: { type: 'string' } },
  words: ['PURCHASE'],
});
const [named = ''] = words;
const amountCents = values.amount === undefined ? undefined : readCents(values.amount);
const operatorAction = readOperatorAction(values);
const settings = await commandSettings();
const { card, baseUrl, serviceName } = readWholeConfig(settings, 'refund');
if (!card) endWith('STRIPE_SECRET_KEY is not set, so the card processor can make no refund. Nothing was refunded.');
const processor = new Processor(card.secretKey, card.apiBase);

await withDatabase({ settings, subject: 'The purchase', use: 'changed', maxConnections: 2 }, async (db) => {
  try {
    await refund(db, named);
  } catch (error) {
    if (!(error instanceof ProcessorError)) throw error;
    console.error(
      `It is unknown whether this was refunded: ${error.message}. Run the command again with the same --key.`,
    );
    process.exitCode = EXIT_UNANSWERED;
  }
});

async function refund(db: Database, name: string): Promise<void> {
  const purchase = await findCreditedPurchase(db, name);
  if (!purchase) {
    console.error('There is no credited purchase with that id or session. Nothing was refunded.');
    process.exitCode = EXIT_REFUSED;
    return;
  }
  const { id, accountId, creditedAt } = purchase;
  const amount = amountCents === undefined ? 'all that is left' : formatCents(amountCents);
  const key = readKey(values.key);
  const change =
    `This refunds ${amount} of purchase ${id} (${formatCents(purchase.amountCents)} on ` +
    `${creditedAt.toISOString().slice(0, 10)}) to its card and takes it from account ${shortenAccount(accountId)}. ` +
    'What the account lacks becomes its debt.';
  if (!(await confirmed(change, values.yes))) return;
  const clawbacks = new Clawbacks(db, processor, new Purchases(db, processor, { baseUrl, serviceName }));
  const result = await refundPurchase({ db, processor, clawbacks }, { purchase, amountCents, key }, operatorAction);
  switch (result.outcome) {
    case 'refunded': {
      const [account] = await readAccounts(db, [accountId]);
      const left = `${formatUsd(account?.balanceMicroUsd ?? 0n)} USD and owes ${formatUsd(account?.debtMicroUsd ?? 0n)} USD`;
      const { refund, unclear } = result;
      if (unclear) console.error(`${printable(unclear)}. Check it at the card processor.`);
      return console.log(
        `${printable(refund.id)} (${refund.status}) refunds ${formatCents(refund.amountCents)}; ${shortenAccount(accountId)} has ${left}`,
      );
    }
    case 'key_of_another':
      process.exitCode = EXIT_USAGE;
      return console.error('This --key belongs to another change. Nothing was refunded.');
    case 'refused':
      process.exitCode = EXIT_REFUSED;
      return console.error(
        `Nothing was refunded: ${result.error.message}. Check for earlier refunds, and whether the amount is too large.`,
      );
  }
}

function readCents(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) endWith(USAGE);
  return Number(text);
}
