import { createInterface } from 'node:readline/promises';
import { type Deed, MAX_NAME, MAX_REASON } from '../operators/operator-action.ts';
import { EXIT_USAGE, endWith } from './arguments.ts';

/** The options of every command that changes something. */
export const DEED_OPTIONS = {
  reason: { type: 'string' },
  operator: { type: 'string' },
  yes: { type: 'boolean', default: false },
} as const;

export const DEED_USAGE = `
  --reason TEXT    why; it is kept, with the operator's name and the time
  --operator NAME  who; otherwise SPEECHGATE_OPERATOR, or the name of the login
  --yes            don't ask`;

/** Who does it and why; without either the process ends. */
export function readDeed(given: {
  readonly reason?: string | undefined;
  readonly operator?: string | undefined;
}): Deed {
  const { SPEECHGATE_OPERATOR, SUDO_USER, USER } = process.env;
  const reason = given.reason?.trim();
  const operator = [given.operator, SPEECHGATE_OPERATOR, SUDO_USER, USER].map((name) => name?.trim()).find(Boolean);
  if (!reason) endWith('Say why with --reason: it is kept.');
  if (reason.length > MAX_REASON) endWith(`--reason may be ${MAX_REASON} characters long.`);
  if (!operator) endWith('Say who you are with --operator, or set SPEECHGATE_OPERATOR.');
  if (operator.length > MAX_NAME) endWith(`The name of the operator may be ${MAX_NAME} characters long.`);
  return { operator, reason };
}

/** Asks before something is changed. Where nobody can be asked, the process ends, unless --yes was said. */
export async function confirmed(change: string, isYes: boolean): Promise<boolean> {
  if (isYes) return true;
  if (!process.stdin.isTTY) endWith(`${change}\nNobody can be asked here: say --yes to go on.`);
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await terminal.question(`${change}\nGo on? [y/N] `).finally(() => terminal.close());
  if (/^y(es)?$/i.test(answer.trim())) return true;
  console.error('Nothing was changed.');
  process.exitCode = EXIT_USAGE;
  return false;
}
