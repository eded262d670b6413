import { JSON_OPTION, UsageError } from '../../../lib/arguments.ts';
import { formatUsd } from '../../../lib/money.ts';
import { printableJson, printableLine, tableLines } from '../../../lib/printable.ts';
import { type AccountHistory, type AccountState, nameOf, readHistory, shortenSession } from '../../audit/accounts.ts';
import { defineCommand, printLines, withDatabase } from '../command.ts';
import { ACCOUNT_USAGE, readNamed } from '../operator-options.ts';

const USAGE = `speechgate admin accounts show ACCOUNT${ACCOUNT_USAGE}
  --last N         number of entries of each kind (default: 20)
  --secrets        prints whole ids of accounts and sessions. Keep them secret: they allow spending
  --json           prints JSON`;

export const showCommand = defineCommand({
  usage: USAGE,
  options: {
    last: { type: 'string', default: '20' },
    secrets: { type: 'boolean', default: false },
    ...JSON_OPTION,
  },
  words: ['ACCOUNT'],
  run: async (values, [named = ''], context) => {
    if (!/^\d{1,6}$/.test(values.last))
      throw new UsageError(`--last is ${values.last}, but it must be a whole number from 0 to 999999.`);
    return withDatabase(context, { subject: 'The accounts' }, async (db) => {
      const { id, address, ...facts } = await readNamed(db, named);
      const history = await readHistory(db, id, Number(values.last));
      const shown = values.secrets ? history : withoutSecrets(history);
      const account = { account: nameOf({ id, address }, values.secrets), ...facts };
      printLines(context, values.json ? [printableJson({ ...account, ...shown })] : linesOf(account, shown));
      return 0;
    });
  },
});

interface ShownAccount extends Omit<AccountState, 'id' | 'address'> {
  readonly account: string;
}

function linesOf(shown: ShownAccount, history: AccountHistory): string[] {
  const { account, kind, balanceMicroUsd, heldMicroUsd, debtMicroUsd, frozenAt, createdAt } = shown;
  const facts: [string, string][] = [
    ['account', account],
    ['kind', `${kind}${modeOf(shown)}`],
    ['since', createdAt.toISOString()],
    ['balance', `${formatUsd(balanceMicroUsd)} USD`],
    ['held', `${formatUsd(heldMicroUsd)} USD`],
    ['debt', `${formatUsd(debtMicroUsd)} USD`],
    ['frozen', frozenAt ? `since ${frozenAt.toISOString()}` : 'no'],
  ];
  const tables = Object.entries(history).filter(([, entries]) => entries.length > 0);
  return [
    ...facts.map((fact) => printableLine([10], fact)),
    ...tables.flatMap(([title, entries]) => [`\n${title}`, ...tableLines(entries, '  ')]),
  ];
}

function modeOf({ kind, livemode }: ShownAccount): string {
  if (kind === 'wallet' || livemode === null) return '';
  return livemode ? ', live mode' : ', test mode';
}

function withoutSecrets({ purchases, ...history }: AccountHistory): AccountHistory {
  const short = purchases.map((each) => ({ ...each, sessionId: each.sessionId && shortenSession(each.sessionId) }));
  return { purchases: short, ...history };
}
