import type { Database } from '../../../db/database.ts';
import { adjustBalance, freezeAccount, MAX_ADJUSTMENT } from '../../../ledger/account-changes.ts';
import { EXIT_USAGE, endWith, readArguments } from '../../../lib/arguments.ts';
import { formatUsd } from '../../../lib/money.ts';
import type { AccountState } from '../../audit/accounts.ts';
import { withDatabase } from '../command-settings.ts';
import {
  ACTION_OPTIONS,
  ACTION_USAGE,
  confirmed,
  KEY_OPTION,
  KEY_USAGE,
  readKey,
  readOperatorAction,
} from '../operator-options.ts';
import { ACCOUNT_USAGE, nameOf, readNamed } from './named.ts';

const AMOUNT = /^[+-]\d{1,15}$/;
const EXIT_REFUSED = 1;

export async function freeze(isFrozen: boolean): Promise<void> {
  const usage = `speechgate accounts ${isFrozen ? 'freeze' : 'unfreeze'} ACCOUNT --reason TEXT${ACCOUNT_USAGE}${ACTION_USAGE}`;
  const { values, words } = readArguments({ usage, options: ACTION_OPTIONS, words: ['ACCOUNT'] });
  const operatorAction = readOperatorAction(values);
  await onCardAccount(words[0], 'Only card accounts can be frozen.', async (db, { id }, name) => {
    const change = isFrozen
      ? `This freezes ${name}. New requests that spend its credit get 402 until you unfreeze it; running requests finish.`
      : `This unfreezes ${name}. Its credit can be spent again.`;
    if (!(await confirmed(change, values.yes))) return;
    const isChanged = await freezeAccount(db, id, isFrozen, operatorAction);
    const state = isFrozen ? 'frozen' : 'not frozen';
    console.log(isChanged ? `${name} is ${state}` : `${name} was already ${state}`);
  });
}

export async function adjust(): Promise<void> {
  const usage = `speechgate accounts adjust ACCOUNT ±MICRO-USD --reason TEXT${ACCOUNT_USAGE}
  ±MICRO-USD       the amount to add, such as +5000000 for 5 USD, or to remove, such as -5000000${ACTION_USAGE}${KEY_USAGE}`;
  const given = process.argv.slice(2);
  // A negative amount would be parsed as an option.
  const args = given.filter((word) => !AMOUNT.test(word));
  const { values, words } = readArguments(
    { usage, options: { ...ACTION_OPTIONS, ...KEY_OPTION }, words: ['ACCOUNT'] },
    args,
  );
  const [text = '0', ...others] = given.filter((word) => AMOUNT.test(word));
  const amountMicroUsd = BigInt(text.replace('+', ''));
  const size = amountMicroUsd < 0n ? -amountMicroUsd : amountMicroUsd;
  if (others.length > 0 || size === 0n || size > MAX_ADJUSTMENT) endWith(usage);
  const operatorAction = readOperatorAction(values);
  const refusal = 'Only card accounts can be adjusted, not prepaid balances.';
  await onCardAccount(words[0], refusal, async (db, account, name) => {
    const amount = `${formatUsd(size)} USD`;
    const change = amountMicroUsd > 0n ? `This adds ${amount} to ${name}.` : `This removes ${amount} from ${name}.`;
    const key = readKey(values.key);
    if (!(await confirmed(`${change} Its balance is ${formatUsd(account.balanceMicroUsd)} USD.`, values.yes))) return;
    const result = await adjustBalance(db, { accountId: account.id, amountMicroUsd, key }, operatorAction);
    switch (result.outcome) {
      case 'adjusted': {
        const { debtPaidMicroUsd: paid } = result;
        const debt = paid > 0n ? `; ${formatUsd(paid)} USD paid its debt` : '';
        return console.log(`${name} has ${formatUsd(result.balanceMicroUsd)} USD${debt}`);
      }
      case 'made_before':
        return console.log('This change was already made with this --key. Nothing was changed.');
      case 'too_little':
        process.exitCode = EXIT_REFUSED;
        return console.error(`${name} has only ${formatUsd(result.balanceMicroUsd)} USD. Nothing was changed.`);
      case 'key_of_another':
        process.exitCode = EXIT_USAGE;
        return console.error('This --key belongs to another change. Nothing was changed.');
      case 'unknown_account':
        process.exitCode = EXIT_REFUSED;
        return console.error('There is no such account.');
    }
  });
}

async function onCardAccount(
  named: string | undefined,
  refusal: string,
  work: (db: Database, account: AccountState, name: string) => Promise<void>,
): Promise<void> {
  await withDatabase({ subject: 'The account', use: 'changed' }, async (db) => {
    const account = await readNamed(db, named ?? '');
    if (!account) return;
    if (account.kind !== 'card') endWith(refusal);
    await work(db, account, nameOf(account));
  });
}
