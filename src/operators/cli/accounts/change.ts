import type { Database } from '../../../db/database.ts';
import { adjustBalance, freezeAccount, MAX_ADJUSTMENT } from '../../../ledger/account-changes.ts';
import { formatUsd } from '../../../lib/money.ts';
import { UsageError } from '../../../lib/usage-error.ts';
import { type AccountState, nameOf } from '../../audit/accounts.ts';
import { type CommandContext, defineCommand, ExitError, type OperatorCommand, withDatabase } from '../command.ts';
import {
  ACCOUNT_USAGE,
  ACTION_OPTIONS,
  ACTION_USAGE,
  confirm,
  KEY_OPTION,
  KEY_USAGE,
  readKey,
  readNamed,
  readOperatorAction,
} from '../operator-options.ts';

const AMOUNT = /^[+-]\d{1,15}$/;

export const freezeCommand = freezing(true);
export const unfreezeCommand = freezing(false);

function freezing(isFrozen: boolean): OperatorCommand {
  return defineCommand({
    usage: `speechgate admin accounts ${isFrozen ? 'freeze' : 'unfreeze'} ACCOUNT --reason TEXT${ACCOUNT_USAGE}${ACTION_USAGE}`,
    options: ACTION_OPTIONS,
    words: ['ACCOUNT'],
    run: async (values, [named = ''], context) => {
      const operatorAction = readOperatorAction(values, context.env);
      return onCardAccount(context, named, 'Only card accounts can be frozen.', async (db, { id }, name) => {
        const change = isFrozen
          ? `This freezes ${name}. New requests that spend its credit get 402 until you unfreeze it; running requests finish.`
          : `This unfreezes ${name}. Its credit can be spent again.`;
        await confirm(context, change, values.yes);
        const isChanged = await freezeAccount(db, id, isFrozen, operatorAction);
        const state = isFrozen ? 'frozen' : 'not frozen';
        context.console.log(isChanged ? `${name} is ${state}` : `${name} was already ${state}`);
      });
    },
  });
}

const ADJUST_USAGE = `speechgate admin accounts adjust ACCOUNT ±MICRO-USD --reason TEXT${ACCOUNT_USAGE}
  ±MICRO-USD       the amount to add, such as +5000000 for 5 USD, or to remove, such as -5000000${ACTION_USAGE}${KEY_USAGE}`;

export const adjustCommand: OperatorCommand = (args, context) =>
  // A negative amount would be parsed as an option.
  adjusting(args.filter((word) => AMOUNT.test(word)))(
    args.filter((word) => !AMOUNT.test(word)),
    context,
  );

const adjusting = ([text = '0', ...others]: readonly string[]): OperatorCommand =>
  defineCommand({
    usage: ADJUST_USAGE,
    options: { ...ACTION_OPTIONS, ...KEY_OPTION },
    words: ['ACCOUNT'],
    run: async (values, [named = ''], context) => {
      const amountMicroUsd = BigInt(text.replace('+', ''));
      const size = amountMicroUsd < 0n ? -amountMicroUsd : amountMicroUsd;
      if (others.length > 0 || size === 0n || size > MAX_ADJUSTMENT) throw new UsageError(ADJUST_USAGE);
      const operatorAction = readOperatorAction(values, context.env);
      const refusal = 'Only card accounts can be adjusted, not prepaid balances.';
      return onCardAccount(context, named, refusal, async (db, account, name) => {
        const amount = `${formatUsd(size)} USD`;
        const change = amountMicroUsd > 0n ? `This adds ${amount} to ${name}.` : `This removes ${amount} from ${name}.`;
        const key = readKey(context, values.key);
        const balance = `Its balance is ${formatUsd(account.balanceMicroUsd)} USD.`;
        await confirm(context, `${change} ${balance}`, values.yes);
        const result = await adjustBalance(db, { accountId: account.id, amountMicroUsd, key }, operatorAction);
        switch (result.outcome) {
          case 'adjusted': {
            const { debtPaidMicroUsd: paid } = result;
            const debt = paid > 0n ? `; ${formatUsd(paid)} USD paid its debt` : '';
            return context.console.log(`${name} has ${formatUsd(result.balanceMicroUsd)} USD${debt}`);
          }
          case 'made_before':
            return context.console.log('This change was already made with this --key. Nothing was changed.');
          case 'too_little':
            throw new ExitError(`${name} has only ${formatUsd(result.balanceMicroUsd)} USD. Nothing was changed.`);
          case 'key_of_another':
            throw new UsageError('This --key belongs to another change. Nothing was changed.');
          case 'unknown_account':
            throw new ExitError('There is no such account.');
        }
      });
    },
  });

async function onCardAccount(
  context: CommandContext,
  named: string,
  refusal: string,
  work: (db: Database, account: AccountState, name: string) => Promise<void>,
): Promise<number> {
  return withDatabase(context, { subject: 'The account', use: 'changed' }, async (db) => {
    const account = await readNamed(db, named);
    if (account.kind !== 'card') throw new UsageError(refusal);
    await work(db, account, nameOf(account));
    return 0;
  });
}
