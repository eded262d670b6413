import { randomUUID } from 'node:crypto';
import { userInfo } from 'node:os';
import { createInterface } from 'node:readline/promises';
import type { Database } from '../../db/database.ts';
import { MAX_NAME, MAX_REASON, type OperatorAction } from '../../ledger/operator-action.ts';
import { EXIT_USAGE, UsageError } from '../../lib/arguments.ts';
import { isUuid } from '../../lib/uuid.ts';
import { type AccountState, accountsNamed, readAccounts, SHORT_ID } from '../audit/accounts.ts';
import { type CommandContext, ExitError } from './command.ts';

export const ACTION_OPTIONS = {
  reason: { type: 'string' },
  operator: { type: 'string' },
  yes: { type: 'boolean', default: false },
} as const;

export const ACTION_USAGE = `
  --reason TEXT    the reason; it is stored with the operator's name and the time
  --operator NAME  your name (default: SPEECHGATE_OPERATOR, else the login name)
  --yes            does not ask for confirmation`;

/** As the system's user database has it. A container's user may be missing there. */
function loginName(): string | undefined {
  try {
    return userInfo().username;
  } catch {
    return undefined;
  }
}

/** @throws UsageError unless reason and operator are known */
export function readOperatorAction(
  given: { readonly reason?: string | undefined; readonly operator?: string | undefined },
  { SPEECHGATE_OPERATOR, SUDO_USER, USER }: NodeJS.ProcessEnv,
): OperatorAction {
  const reason = given.reason?.trim();
  const operator = [given.operator, SPEECHGATE_OPERATOR, SUDO_USER, USER, loginName()]
    .map((name) => name?.trim())
    .find(Boolean);
  if (!reason) throw new UsageError('--reason is missing, so nothing was changed. Give the reason, which is stored.');
  if (reason.length > MAX_REASON)
    throw new UsageError(`--reason is too long, so nothing was changed. Use at most ${MAX_REASON} characters.`);
  if (!operator)
    throw new UsageError(
      'The name of the operator is unknown, so nothing was changed. Give it with --operator, or set SPEECHGATE_OPERATOR.',
    );
  if (operator.length > MAX_NAME) {
    throw new UsageError(
      `The name of the operator is too long, so nothing was changed. Use at most ${MAX_NAME} characters.`,
    );
  }
  return { operator, reason };
}

export const KEY_OPTION = { key: { type: 'string' } } as const;
export const KEY_USAGE = `
  --key UUID       the key that an interrupted run printed; the change is made only once`;

/** Prints the key, so that the operator can repeat a command that failed halfway. @throws UsageError */
export function readKey({ console }: CommandContext, given: string | undefined): string {
  if (given !== undefined && !isUuid(given)) {
    throw new UsageError('--key is not a UUID, so nothing was changed. Give the key that the interrupted run printed.');
  }
  const key = given?.toLowerCase() ?? randomUUID();
  console.error(`If this command is interrupted, run it again with this option, to change nothing twice: --key ${key}`);
  return key;
}

/** Says what changes. @throws UsageError unless the operator says yes, at the terminal or by --yes */
export async function confirm(
  { console, stdin, stderr }: CommandContext,
  change: string,
  isYes: boolean,
): Promise<void> {
  if (isYes) return console.error(change);
  if (!stdin.isTTY)
    throw new UsageError(
      `${change}\nNothing was changed: there is no terminal to confirm this. Add --yes to continue.`,
    );
  const terminal = createInterface({ input: stdin, output: stderr });
  const answer = await terminal.question(`${change}\nContinue? [y/N] `).finally(() => terminal.close());
  if (!/^y(es)?$/i.test(answer.trim())) throw new ExitError('Nothing was changed.', EXIT_USAGE);
}

export const ACCOUNT_USAGE = `
  ACCOUNT          a card account's id or at least its first ${SHORT_ID} digits, or a wallet's address`;

/** @throws ExitError unless exactly one account matches */
export async function readNamed(db: Database, name: string): Promise<AccountState> {
  const ids = await accountsNamed(db, name);
  const accounts = await readAccounts(db, ids ?? []);
  const [account] = accounts;
  if (account && accounts.length === 1) return account;
  if (accounts.length > 1) throw new ExitError('Several accounts match ACCOUNT. Give more digits of its id.');
  throw new ExitError(
    ids
      ? 'ACCOUNT does not exist. Check its id or address.'
      : `ACCOUNT is not an id or address. Give at least ${SHORT_ID} digits of a card account's id, or a wallet's address.`,
  );
}
