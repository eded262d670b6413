import { once } from 'node:events';
import { type SelectQueryBuilder, sql } from 'kysely';
import type { DB } from '../../../../db/tables.ts';
import type { Database } from '../../../db/database.ts';
import { eraseFeedback } from '../../../feedback/outbox.ts';
import { countUnfinishedJobs, expireAudio } from '../../../jobs/job.ts';
import { type OperatorAction, recordAction } from '../../../ledger/operator-action.ts';
import { csvLine, csvRow, printableJson } from '../../../lib/printable.ts';
import {
  accountsNamed,
  nameOf,
  selectFeedback,
  selectHistory,
  selectPayments,
  shortenSession,
} from '../../audit/accounts.ts';
import { type CommandContext, defineCommand, EXIT_FAILED, ExitError, withDatabase } from '../command.ts';
import {
  ACCOUNT_USAGE,
  ACTION_OPTIONS,
  ACTION_USAGE,
  confirm,
  readNamed,
  readOperatorAction,
} from '../operator-options.ts';

const PAGE_ROWS = 500;
const ADDRESS = /^0x[0-9a-f]{40}$/i;

const EXPORT_USAGE = `speechgate admin accounts export ACCOUNT
Prints every record about it as JSON, one a line.${ACCOUNT_USAGE}
  --csv            prints CSV
  --secrets        prints whole ids of accounts and sessions. Keep them secret: they allow spending`;

export const exportCommand = defineCommand({
  usage: EXPORT_USAGE,
  options: { csv: { type: 'boolean', default: false }, secrets: { type: 'boolean', default: false } },
  words: ['ACCOUNT'],
  run: async ({ csv, secrets }, [named = ''], context) =>
    withDatabase(context, { subject: 'The account' }, (db) =>
      db
        .transaction()
        .setIsolationLevel('repeatable read')
        .execute(async (snapshot) => {
          const owner = await readOwner(snapshot, named);
          const columns = new Set<string>();
          for await (const record of recordsOf(snapshot, owner, secrets)) {
            for (const column of Object.keys(record)) columns.add(column);
            // In JSON nothing depends on later records.
            if (!csv) await print(context, printableJson(record, 0));
          }
          if (columns.size === 0) {
            context.console.error('Nothing is stored about ACCOUNT.');
            return EXIT_FAILED;
          }
          if (!csv) return 0;
          context.console.log(csvLine([...columns]));
          for await (const record of recordsOf(snapshot, owner, secrets)) {
            await print(context, csvRow([...columns], record));
          }
          return 0;
        }),
    ),
});

/** Waits for a slow reader, which would otherwise leave the whole export in memory. */
async function print({ console, stdout }: CommandContext, line: string): Promise<void> {
  console.log(line);
  if (stdout.writableNeedDrain) await once(stdout, 'drain');
}

/** A wallet that only pays directly or sends feedback has no account. */
interface Owner {
  readonly id: string | undefined;
  readonly address: string | null;
}

async function readOwner(db: Database, named: string): Promise<Owner> {
  if (!ADDRESS.test(named)) return readNamed(db, named);
  const [id] = (await accountsNamed(db, named)) ?? [];
  return { id, address: named.toLowerCase() };
}

/** All records, of which only a page is in memory. */
async function* recordsOf(snapshot: Database, { id, address }: Owner, secrets: boolean): AsyncGenerator<object> {
  if (id !== undefined) {
    const { id: _, ...account } = await readNamed(snapshot, address ?? id);
    yield { record: 'account', account: nameOf({ id, address }, secrets), ...account };
    const { purchases, clawbacks, transfers, jobs, actions } = selectHistory(snapshot, id);
    const shown = (sessionId: string | null) => (secrets ? sessionId : sessionId && shortenSession(sessionId));
    for await (const { sessionId, ...purchase } of rowsOf(snapshot, 'purchase', purchases)) {
      yield { ...purchase, sessionId: shown(sessionId) };
    }
    yield* rowsOf(snapshot, 'clawback', clawbacks);
    yield* rowsOf(snapshot, 'transfer', transfers);
    yield* rowsOf(snapshot, 'job', jobs);
    yield* rowsOf(snapshot, 'action', actions);
  }
  if (address !== null) {
    yield* rowsOf(snapshot, 'payment', selectPayments(snapshot, address));
    yield* rowsOf(snapshot, 'feedback', selectFeedback(snapshot, address));
  }
}

async function* rowsOf<Row>(snapshot: Database, record: string, rows: SelectQueryBuilder<DB, never, Row>) {
  const cursor = sql.id(record);
  await sql`declare ${cursor} no scroll cursor for ${rows}`.execute(snapshot);
  let page: readonly Row[];
  do {
    page = (await sql<Row>`fetch ${sql.lit(PAGE_ROWS)} from ${cursor}`.execute(snapshot)).rows;
    for (const row of page) yield { record, ...row };
  } while (page.length > 0);
  await sql`close ${cursor}`.execute(snapshot);
}

const ERASE_USAGE = `speechgate admin accounts erase ACCOUNT --reason TEXT
Erases feedback and stored audio. The ledger stays.${ACCOUNT_USAGE}${ACTION_USAGE}`;

export const eraseCommand = defineCommand({
  usage: ERASE_USAGE,
  options: ACTION_OPTIONS,
  words: ['ACCOUNT'],
  run: async (values, [named = ''], context) => {
    const operatorAction = readOperatorAction(values, context.env);
    return withDatabase(context, { subject: 'The account', use: 'changed' }, async (db) => {
      const owner = await readOwner(db, named);
      const name = nameOf({ id: owner.id ?? '', address: owner.address });
      const change =
        `This will erase the feedback of ${name} and the stored audio of its jobs. ` +
        'Transfers, purchases and payments stay, because the ledger needs them. ' +
        'Audio paid in USDC is kept for a day, so that its buyer can fetch it again.';
      await confirm(context, change, values.yes);
      const unfinished = owner.id === undefined ? 0 : await countUnfinishedJobs(db, owner.id);
      if (unfinished > 0) {
        throw new ExitError(
          `Jobs of ${name} that are not finished and may store audio later: ${unfinished}. ` +
            'Nothing was erased: freeze the account, wait for its jobs, then run the command again.',
        );
      }
      const { feedback, jobs } = await erase(db, owner, operatorAction);
      context.console.log(`${name}: erased feedback messages: ${feedback}, jobs with stored audio: ${jobs}`);
      return 0;
    });
  },
});

async function erase(db: Database, { id, address }: Owner, operatorAction: OperatorAction) {
  return db.transaction().execute(async (trx) => {
    const jobs = id === undefined ? 0 : await expireAudio(trx, id);
    const feedback = address === null ? 0 : await eraseFeedback(trx, address);
    const detail = { feedback, jobs };
    await recordAction(trx, { ...operatorAction, action: 'erase', subject: id ?? address ?? '', detail });
    return detail;
  });
}
