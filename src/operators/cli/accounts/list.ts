import { JSON_OPTION, readUsd, UsageError } from '../../../lib/arguments.ts';
import { readMoment } from '../../../lib/moment.ts';
import { printableJson, tableLines } from '../../../lib/printable.ts';
import { type AccountFilter, listedAccounts, readAccounts } from '../../audit/accounts.ts';
import { readEnd } from '../../report/books.ts';
import { defineCommand, printLines, withDatabase } from '../command.ts';
import { columnsOf, shownAccount } from './find.ts';

const KINDS = ['card', 'wallet'] as const;

const USAGE = `speechgate admin accounts list
Prints the newest accounts that match every option.
  --kind KIND      ${KINDS.join(' or ')}
  --min USD        with a balance of at least this
  --max USD        with a balance of at most this
  --from DAY       created on this day or later, such as 2026-11-01 (UTC)
  --to DAY         created on this day or earlier
  --frozen         only frozen ones
  --indebted       only those with a debt
  --last N         number of accounts (default: 50)
  --secrets        prints whole ids of accounts. Keep them secret: they allow spending
  --json           prints a JSON array`;

export const listCommand = defineCommand({
  usage: USAGE,
  options: {
    kind: { type: 'string' },
    min: { type: 'string' },
    max: { type: 'string' },
    from: { type: 'string' },
    to: { type: 'string' },
    frozen: { type: 'boolean', default: false },
    indebted: { type: 'boolean', default: false },
    last: { type: 'string', default: '50' },
    secrets: { type: 'boolean', default: false },
    ...JSON_OPTION,
  },
  run: async ({ json, secrets, last, ...wanted }, _words, context) => {
    if (!/^[1-9]\d{0,5}$/.test(last))
      throw new UsageError(`--last is ${last}, but it must be a whole number from 1 to 999999.`);
    const filter = readFilter(wanted);
    return withDatabase(context, { subject: 'The accounts' }, async (db) => {
      const accounts = await readAccounts(db, await listedAccounts(db, filter, Number(last)));
      const shown = accounts.reverse().map((account) => shownAccount(account, secrets));
      printLines(context, json ? [printableJson(shown)] : tableLines(shown.map(columnsOf)));
      if (shown.length === 0) context.console.error('No account matches these options.');
      if (shown.length === Number(last))
        context.console.error(`Older accounts may be left out. Raise --last to see more.`);
      return 0;
    });
  },
});

type Wanted = Partial<Record<'kind' | 'min' | 'max' | 'from' | 'to', string | undefined>> & {
  readonly frozen: boolean;
  readonly indebted: boolean;
};

function readFilter({ kind, min, max, from, to, frozen, indebted }: Wanted): AccountFilter {
  const known = KINDS.find((each) => each === kind);
  if (kind !== undefined && !known) throw new UsageError(`--kind is ${kind}, but it must be ${KINDS.join(' or ')}.`);
  const createdFrom = from === undefined ? undefined : readMoment(from);
  const createdTo = to === undefined ? undefined : readEnd(to);
  if ((from !== undefined && !createdFrom) || (to !== undefined && !createdTo)) {
    throw new UsageError(
      '--from or --to is not a date. Give a day such as 2026-11-01, or a time such as 2026-11-01T12:00Z.',
    );
  }
  return {
    kind: known,
    minMicroUsd: min === undefined ? undefined : readUsd(min, '--min'),
    maxMicroUsd: max === undefined ? undefined : readUsd(max, '--max'),
    ...{ createdFrom, createdTo, isFrozen: frozen, isIndebted: indebted },
  };
}
