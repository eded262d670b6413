import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline/promises';
import { MAX_NAME, MAX_REASON, type OperatorAction } from '../../ledger/operator-action.ts';
import { EXIT_USAGE, endWith } from '../../lib/arguments.ts';
import { isUuid } from '../../lib/uuid.ts';

export const ACTION_OPTIONS = {
  reason: { type: 'string' },
  operator: { type: 'string' },
  yes: { type: 'boolean', default: false },
} as const;

export const ACTION_USAGE = `
  --reason TEXT    the reason; it is stored with the operator's name and the time
  --operator NAME  your name (default: SPEECHGATE_OPERATOR, else the login name)
  --yes            does not ask for confirmation`;

/** Exits unless reason and operator are known. */
export function readOperatorAction(given: {
  readonly reason?: string | undefined;
  readonly operator?: string | undefined;
}): OperatorAction {
  const { SPEECHGATE_OPERATOR, SUDO_USER, USER } = process.env;
  const reason = given.reason?.trim();
  const operator = [given.operator, SPEECHGATE_OPERATOR, SUDO_USER, USER].map((name) => name?.trim()).find(Boolean);
  if (!reason) endWith('--reason is missing. Give the reason, which is stored.');
  if (reason.length > MAX_REASON) endWith(`--reason can have at most ${MAX_REASON} characters.`);
  if (!operator) endWith('Give your name with --operator, or set SPEECHGATE_OPERATOR.');
  if (operator.length > MAX_NAME) endWith(`The name of the operator can have at most ${MAX_NAME} characters.`);
  return { operator, reason };
}

export const KEY_OPTION = { key: { type: 'string' } } as const;
export const KEY_USAGE = `
  --key UUID       printed by an interrupted run; nothing is done twice`;

/** Prints the key, so that the operator can repeat a command that failed halfway. */
export function readKey(given: string | undefined): string {
  if (given !== undefined && !isUuid(given)) endWith('--key takes the UUID that the interrupted run printed.');
  const key = given?.toLowerCase() ?? randomUUID();
  console.error(`If this is interrupted, repeat it with --key ${key}`);
  return key;
}

/** Exits if there is no terminal to ask at, and no --yes. */
export async function confirmed(change: string, isYes: boolean): Promise<boolean> {
  if (isYes) return true;
  if (!process.stdin.isTTY) endWith(`${change}\nThere is no terminal to confirm this. Add --yes to continue.`);
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await terminal.question(`${change}\nContinue? [y/N] `).finally(() => terminal.close());
  if (/^y(es)?$/i.test(answer.trim())) return true;
  console.error('Nothing was changed.');
  process.exitCode = EXIT_USAGE;
  return false;
}
