import { type AccountHistory, type AccountState, readHistory } from '../../audit/account-history.ts';
import { shortenSession } from '../../audit/account-names.ts';
import { formatUsd } from '../../lib/money.ts';
import { endWith, readArguments } from '../arguments.ts';
import { commandSettings } from '../command-settings.ts';
import { look } from '../look.ts';
import { printableJson } from '../printable.ts';
import { printableLine } from '../table-line.ts';
import { ACCOUNT_USAGE, nameOf, readNamed } from './named.ts';

const USAGE = `speechgate accounts show ACCOUNT${ACCOUNT_USAGE}
  --last N         how many entries of each kind, 20 unless told otherwise
  --secrets        show ids of accounts and sessions whole: whoever has them can spend
  --json           print it as JSON`;

const { values, positionals } = readArguments(
  {
    allowPositionals: true,
    options: {
      last: { type: 'string', default: '20' },
      secrets: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
    },
  },
  USAGE,
);
const [named, ...more] = positionals;
const last = /^\d{1,6}$/.test(values.last) ? Number(values.last) : endWith(USAGE);
if (named === undefined || more.length > 0) endWith(USAGE);

await look({ settings: await commandSettings(), subject: 'The accounts' }, async (db) => {
  const account = await readNamed(db, named);
  if (!account) return;
  const history = await readHistory(db, account.id, last);
  if (values.json) console.log(printableJson(jsonOf(account, history)));
  else print(account, history);
});

function print(account: AccountState, { purchases, clawbacks, transfers, jobs, actions }: AccountHistory): void {
  const { kind, balanceMicroUsd, heldMicroUsd, debtMicroUsd, frozenAt, createdAt } = account;
  const facts: [string, string][] = [
    ['account', nameOf(account, values.secrets)],
    ['kind', `${kind}${modeOf(account)}`],
    ['since', createdAt.toISOString()],
    ['balance', usd(balanceMicroUsd)],
    ['held', usd(heldMicroUsd)],
    ['debt', usd(debtMicroUsd)],
    ['frozen', frozenAt ? `since ${frozenAt.toISOString()}` : 'no'],
  ];
  for (const [name, value] of facts) console.log(printableLine([10], [name, value]));
  section(
    'purchases',
    [24, 36, 9, 8, 20],
    ['at', 'id', 'state', 'cents', 'session', 'payment'],
    purchases.map((each) => [
      ...[each.at.toISOString(), each.id, each.state, String(each.amountCents)],
      ...[session(each.sessionId) ?? '', each.paymentIntentId ?? ''],
    ]),
  );
  section(
    'refunds and disputes',
    [24, 28, 8, 9, 16, 8],
    ['at', 'id', 'kind', 'state', 'status', 'cents', 'purchase'],
    clawbacks.map(({ at, id, kind, state, status, amountCents, purchaseId }) => [
      ...[at.toISOString(), id, kind, state, status, String(amountCents), purchaseId],
    ]),
  );
  section(
    'entries',
    [24, 10, 13, 8, 12, 10],
    ['at', 'id', 'kind', 'state', 'micro-USD', 'characters', 'trace id'],
    transfers.map(({ at, id, kind, state, amountMicroUsd, characters, traceId }) => [
      ...[at.toISOString(), String(id), kind, state, String(amountMicroUsd), String(characters ?? ''), traceId ?? ''],
    ]),
  );
  section(
    'jobs',
    [24, 36, 10, 8, 36],
    ['at', 'id', 'state', 'attempts', 'trace id', 'error'],
    jobs.map(({ at, id, state, attempts, traceId, errorCode }) => [
      ...[at.toISOString(), id, state, String(attempts), traceId, errorCode ?? ''],
    ]),
  );
  section(
    'operators',
    [24, 12, 16, 32],
    ['at', 'action', 'operator', 'detail', 'reason'],
    actions.map(({ at, operator, action, reason, detail }) => [
      ...[at.toISOString(), action, operator, detail ? JSON.stringify(detail) : '', reason],
    ]),
  );
}

function section(title: string, widths: readonly number[], heads: readonly string[], rows: readonly string[][]): void {
  if (rows.length === 0) return;
  console.log(`\n${title}`);
  for (const row of [heads, ...rows]) console.log(`  ${printableLine(widths, row)}`);
}

function usd(microUsd: bigint): string {
  return `${formatUsd(microUsd)} USD`;
}

function modeOf({ kind, livemode }: AccountState): string {
  if (kind === 'wallet' || livemode === null) return '';
  return livemode ? ', live mode' : ', test mode';
}

function session(id: string | null): string | null {
  return id === null || values.secrets ? id : shortenSession(id);
}

function jsonOf({ id, address, ...account }: AccountState, { purchases, ...history }: AccountHistory) {
  const shown = {
    account: nameOf({ id, address }, values.secrets),
    ...account,
    purchases: purchases.map((each) => ({ ...each, sessionId: session(each.sessionId) })),
    ...history,
  };
  return JSON.parse(JSON.stringify(shown, (_key, value) => (typeof value === 'bigint' ? Number(value) : value)));
}
