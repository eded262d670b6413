import { endWith, JSON_OPTION, readArguments } from '../../../lib/arguments.ts';
import { formatUsd } from '../../../lib/money.ts';
import { printableJson, printableLine, printTable } from '../../../lib/printable.ts';
import { shortenSession } from '../../audit/account-names.ts';
import { type AccountHistory, type AccountState, readHistory } from '../../audit/accounts.ts';
import { withDatabase } from '../command-settings.ts';
import { ACCOUNT_USAGE, nameOf, readNamed } from './named.ts';

const USAGE = `speechgate accounts show ACCOUNT${ACCOUNT_USAGE}
  --last N         number of entries of each kind (default: 20)
  --secrets        prints whole ids of accounts and sessions; anyone who has one can spend
  --json           prints JSON`;

const { values, words } = readArguments({
  usage: USAGE,
  options: {
    last: { type: 'string', default: '20' },
    secrets: { type: 'boolean', default: false },
    ...JSON_OPTION,
  },
  words: ['ACCOUNT'],
});
const [named = ''] = words;
const last = /^\d{1,6}$/.test(values.last) ? Number(values.last) : endWith(USAGE);

await withDatabase({ subject: 'The accounts' }, async (db) => {
  const account = await readNamed(db, named);
  if (!account) return;
  const history = shown(await readHistory(db, account.id, last));
  if (!values.json) return print(account, history);
  const { id, address, ...facts } = account;
  console.log(printableJson({ account: nameOf({ id, address }, values.secrets), ...facts, ...history }));
});

function print(account: AccountState, history: AccountHistory): void {
  const { kind, balanceMicroUsd, heldMicroUsd, debtMicroUsd, frozenAt, createdAt } = account;
  const facts: [string, string][] = [
    ['account', nameOf(account, values.secrets)],
    ['kind', `${kind}${modeOf(account)}`],
    ['since', createdAt.toISOString()],
    ['balance', `${formatUsd(balanceMicroUsd)} USD`],
    ['held', `${formatUsd(heldMicroUsd)} USD`],
    ['debt', `${formatUsd(debtMicroUsd)} USD`],
    ['frozen', frozenAt ? `since ${frozenAt.toISOString()}` : 'no'],
  ];
  for (const [name, value] of facts) console.log(printableLine([10], [name, value]));
  for (const [title, entries] of Object.entries(history)) {
    if (entries.length > 0) console.log(`\n${title}`);
    printTable(entries, '  ');
  }
}

function modeOf({ kind, livemode }: AccountState): string {
  if (kind === 'wallet' || livemode === null) return '';
  return livemode ? ', live mode' : ', test mode';
}

function shown({ purchases, ...history }: AccountHistory): AccountHistory {
  const short = purchases.map((each) => ({ ...each, sessionId: each.sessionId && shortenSession(each.sessionId) }));
  return { purchases: values.secrets ? purchases : short, ...history };
}
