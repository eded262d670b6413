import type { Database } from '../../../db/database.ts';
import { adjustBalance, freezeAccount, MAX_ADJUSTMENT } from '../../../ledger/account-changes.ts';
import { readUsd, UsageError } from '../../../lib/arguments.ts';
import { formatUsd } from '../../../lib/money.ts';
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

/** It would be parsed as an option. */
const NEGATIVE = /^-[$\d.]/;

export const freezeCommand = freezing(true);
export const unfreezeCommand = freezing(false);

function freezing(isFrozen: boolean): OperatorCommand {
  return defineCommand({
    usage: `speechgate admin accounts ${isFrozen ? 'freeze' : 'unfreeze'} ACCOUNT --reason TEXT${ACCOUNT_USAGE}${ACTION_USAGE}`,
    options: ACTION_OPTIONS,
    words: ['ACCOUNT'],
    run: async (values, [named = ''], context) => {
      const operatorAction = readOperatorAction(values, context.env);
      return onCardAccount(
        context,
        named,
        'ACCOUNT is a wallet, and only card accounts can be frozen. Nothing was changed.',
        async (db, { id }, name) => {
          const change = isFrozen
            ? `This will freeze ${name}. New requests that spend its credit get 402 until you unfreeze it; running requests finish.`
            : `This will unfreeze ${name}. New requests can spend its credit again.`;
          await confirm(context, change, values.yes);
          const isChanged = await freezeAccount(db, id, isFrozen, operatorAction);
          const state = isFrozen ? 'frozen' : 'not frozen';
          context.console.log(isChanged ? `${name} is ${state}` : `${name} was already ${state}`);
        },
      );
    },
  });
}

const ADJUST_USAGE = `speechgate admin accounts adjust ACCOUNT USD --reason TEXT${ACCOUNT_USAGE}
  USD              the amount to give, such as 5 or 0.25, or to take, such as -5${ACTION_USAGE}${KEY_USAGE}`;

export const adjustCommand: OperatorCommand = (args, context) =>
  adjust(
    [
      ...args.filter((word) => !NEGATIVE.test(word)),
      ...args.filter((word) => NEGATIVE.test(word)).flatMap((word) => ['--', word]),
    ],
    context,
  );

const adjust = defineCommand({
  usage: ADJUST_USAGE,
  options: { ...ACTION_OPTIONS, ...KEY_OPTION },
  words: ['ACCOUNT', 'USD'],
  run: async (values, [named = '', text = ''], context) => {
    const amountMicroUsd = readAdjustment(text);
    const operatorAction = readOperatorAction(values, context.env);
    const refusal = 'ACCOUNT is a wallet, and only card accounts can be adjusted. Nothing was changed.';
    return onCardAccount(context, named, refusal, async (db, account, name) => {
      const isOverdrawn = account.balanceMicroUsd + amountMicroUsd < 0n;
      if (isOverdrawn && values.key === undefined) throw tooLittle(name, account.balanceMicroUsd);
      const key = readKey(context, values.key);
      await confirm(context, describe(name, account, amountMicroUsd), values.yes);
      const result = await adjustBalance(db, { accountId: account.id, amountMicroUsd, key }, operatorAction);
      switch (result.outcome) {
        case 'adjusted': {
          const { debtPaidMicroUsd: paid } = result;
          const debt = paid > 0n ? `; ${formatUsd(paid)} USD of the amount paid its debt` : '';
          return context.console.log(
            `${name} was adjusted and now has ${formatUsd(result.balanceMicroUsd)} USD${debt}`,
          );
        }
        case 'made_before':
          return context.console.log(
            'An earlier run with this --key already made this change. Nothing was changed now.',
          );
        case 'too_little':
          throw tooLittle(name, result.balanceMicroUsd);
        case 'key_of_another':
          throw new UsageError(
            '--key was used for another change. Nothing was changed: run the command without --key for a new change.',
          );
        case 'unknown_account':
          throw new ExitError('ACCOUNT does not exist. Nothing was changed.');
      }
    });
  },
});

function readAdjustment(text: string): bigint {
  const [, sign, size = ''] = /^([+-]?)(.*)$/s.exec(text) ?? [];
  const microUsd = readUsd(size, 'USD');
  if (microUsd === 0n || microUsd > MAX_ADJUSTMENT) {
    throw new UsageError(
      `USD must be an amount such as 5 or -5, up to ${formatUsd(MAX_ADJUSTMENT)}, not ${text}. Nothing was changed.`,
    );
  }
  return sign === '-' ? -microUsd : microUsd;
}

function describe(name: string, { balanceMicroUsd, debtMicroUsd }: AccountState, amountMicroUsd: bigint): string {
  const from = formatUsd(balanceMicroUsd);
  if (amountMicroUsd < 0n) {
    return `This will take ${formatUsd(-amountMicroUsd)} USD from ${name}: balance ${from} -> ${formatUsd(balanceMicroUsd + amountMicroUsd)}`;
  }
  const paid = debtMicroUsd < amountMicroUsd ? debtMicroUsd : amountMicroUsd;
  const debt = paid > 0n ? ` (${formatUsd(paid)} USD pays its debt)` : '';
  const to = formatUsd(balanceMicroUsd + amountMicroUsd - paid);
  return `This will give ${name} ${formatUsd(amountMicroUsd)} USD: balance ${from} -> ${to}${debt}`;
}

const tooLittle = (name: string, balanceMicroUsd: bigint): ExitError =>
  new ExitError(`${name} has only ${formatUsd(balanceMicroUsd)} USD. Nothing was changed: take at most that amount.`);

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
