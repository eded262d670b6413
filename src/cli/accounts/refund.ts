import { readAccounts } from '../../audit/account-history.ts';
import { shortenAccount } from '../../audit/account-names.ts';
import type { Database } from '../../db/database.ts';
import { formatCents, formatUsd } from '../../lib/money.ts';
import { Clawbacks } from '../../top-up/clawbacks.ts';
import { Processor } from '../../top-up/processor.ts';
import { ProcessorError } from '../../top-up/processor-call.ts';
import { Purchases } from '../../top-up/purchases.ts';
import { findCreditedPurchase, refundPurchase } from '../../top-up/refund-purchase.ts';
import { EXIT_USAGE, endWith, readArguments } from '../arguments.ts';
import { commandSettings } from '../command-settings.ts';
import { confirmed, DEED_OPTIONS, DEED_USAGE, readDeed } from '../deed.ts';
import { look } from '../look.ts';
import { printable } from '../printable.ts';
import { readWholeConfig } from '../whole-config.ts';
import { KEY_OPTION, KEY_USAGE, readKey } from './key.ts';

const USAGE = `speechgate accounts refund PURCHASE --reason TEXT
  PURCHASE         its id, or that of its checkout session
  --amount CENTS   a part of it; otherwise all that is left${DEED_USAGE}${KEY_USAGE}`;
const EXIT_REFUSED = 1;
const EXIT_UNANSWERED = 2;

/** `speechgate accounts refund PURCHASE --reason TEXT` pays a purchase back to its card, and takes its credit back. */
const { values, positionals } = readArguments(
  { allowPositionals: true, options: { ...DEED_OPTIONS, ...KEY_OPTION, amount: { type: 'string' } } },
  USAGE,
);
const [named, ...more] = positionals;
if (named === undefined || more.length > 0) endWith(USAGE);
const amountCents = values.amount === undefined ? undefined : readCents(values.amount);
const deed = readDeed(values);
const settings = await commandSettings();
const { card, baseUrl, serviceName } = readWholeConfig(settings, 'refund');
if (!card) endWith('STRIPE_SECRET_KEY is not set: the card processor has to pay back.');
const processor = new Processor(card.secretKey, card.apiBase);

await look({ settings, subject: 'The purchase', use: 'changed', maxConnections: 2 }, async (db) => {
  try {
    await refund(db, named);
  } catch (error) {
    if (!(error instanceof ProcessorError)) throw error;
    console.error(`Whether it was refunded is not known: ${error.message}. Repeat it with the same --key.`);
    process.exitCode = EXIT_UNANSWERED;
  }
});

async function refund(db: Database, name: string): Promise<void> {
  const purchase = await findCreditedPurchase(db, name);
  if (!purchase) {
    console.error('There is no credited purchase of that id or session.');
    process.exitCode = EXIT_REFUSED;
    return;
  }
  const { id, accountId, creditedAt } = purchase;
  const amount = amountCents === undefined ? 'all that is left of it' : formatCents(amountCents);
  const key = readKey(values.key);
  const change =
    `This pays ${amount} back to the card, of ${formatCents(purchase.amountCents)} that ${shortenAccount(accountId)} bought on ` +
    `${creditedAt.toISOString().slice(0, 10)} (${id}), and takes it from the account; what that has not, it owes.`;
  if (!(await confirmed(change, values.yes))) return;
  const clawbacks = new Clawbacks(db, processor, new Purchases(db, processor, { baseUrl, serviceName }));
  const result = await refundPurchase({ db, processor, clawbacks }, { purchase, amountCents, key }, deed);
  switch (result.outcome) {
    case 'refunded': {
      const [account] = await readAccounts(db, [accountId]);
      const left = `${formatUsd(account?.balanceMicroUsd ?? 0n)} USD, and owes ${formatUsd(account?.debtMicroUsd ?? 0n)} USD`;
      const { refund, unclear } = result;
      if (unclear) console.error(`${printable(unclear)}. Compare it with the card processor.`);
      return console.log(
        `${printable(refund.id)} (${refund.status}) pays ${formatCents(refund.amountCents)} back; ${shortenAccount(accountId)} has ${left}`,
      );
    }
    case 'key_of_another':
      process.exitCode = EXIT_USAGE;
      return console.error('This key belongs to another change: nothing was refunded.');
    case 'refused':
      process.exitCode = EXIT_REFUSED;
      return console.error(
        `Nothing was refunded: ${result.error.message}. Was it refunded before, or is that too much?`,
      );
  }
}

function readCents(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) endWith(USAGE);
  return Number(text);
}
