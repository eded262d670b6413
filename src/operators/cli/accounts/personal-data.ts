import type { Database } from '../../../db/database.ts';
import { eraseFeedback } from '../../../feedback/outbox.ts';
import { expireAudio } from '../../../jobs/job.ts';
import { type OperatorAction, recordAction } from '../../../ledger/operator-action.ts';
import { csvLines, printableJson } from '../../../lib/printable.ts';
import { accountsNamed, feedbackOf, nameOf, paymentsOf, readHistory, shortenSession } from '../../audit/accounts.ts';
import { defineCommand, EXIT_FAILED, printLines, withDatabase } from '../command.ts';
import {
  ACCOUNT_USAGE,
  ACTION_OPTIONS,
  ACTION_USAGE,
  confirm,
  readNamed,
  readOperatorAction,
} from '../operator-options.ts';

const EVERY_ENTRY = 2 ** 31;
const ADDRESS = /^0x[0-9a-f]{40}$/i;

const EXPORT_USAGE = `speechgate admin accounts export ACCOUNT
Prints every record about it as JSON, one a line.${ACCOUNT_USAGE}
  --csv            prints CSV
  --secrets        prints whole ids of accounts and sessions; anyone who has one can spend`;

export const exportCommand = defineCommand({
  usage: EXPORT_USAGE,
  options: { csv: { type: 'boolean', default: false }, secrets: { type: 'boolean', default: false } },
  words: ['ACCOUNT'],
  run: async ({ csv, secrets }, [named = ''], context) =>
    withDatabase(context, { subject: 'The account' }, async (db) => {
      const records = await recordsOf(db, await readOwner(db, named), secrets);
      if (records.length === 0) context.console.error('Nothing is stored about it.');
      else printLines(context, csv ? csvLines(records) : records.map((record) => printableJson(record, 0)));
      return records.length === 0 ? EXIT_FAILED : 0;
    }),
});

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

async function recordsOf(db: Database, { id, address }: Owner, secrets: boolean): Promise<object[]> {
  const records: object[] = [];
  const add = (record: string, rows: readonly object[]) => records.push(...rows.map((row) => ({ record, ...row })));
  if (id !== undefined) {
    const { id: _, ...account } = await readNamed(db, address ?? id);
    add('account', [{ account: nameOf({ id, address }, secrets), ...account }]);
    const { purchases, clawbacks, transfers, jobs, actions } = await readHistory(db, id, EVERY_ENTRY);
    const shown = (sessionId: string | null) => (secrets ? sessionId : sessionId && shortenSession(sessionId));
    add(
      'purchase',
      purchases.map((purchase) => ({ ...purchase, sessionId: shown(purchase.sessionId) })),
    );
    add('clawback', clawbacks);
    add('transfer', transfers);
    add('job', jobs);
    add('action', actions);
  }
  if (address !== null) {
    add('payment', await paymentsOf(db, address));
    add('feedback', await feedbackOf(db, address));
  }
  return records;
}

const ERASE_USAGE = `speechgate admin accounts erase ACCOUNT --reason TEXT
Erases feedback and stored audio. The books stay.${ACCOUNT_USAGE}${ACTION_USAGE}`;

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
        `This erases the feedback of ${name} and the stored audio of its jobs. ` +
        'Entries, purchases and payments stay, because the books need them.';
      await confirm(context, change, values.yes);
      const { feedback, jobs } = await erase(db, owner, operatorAction);
      context.console.log(`${name}: erased ${feedback} of feedback, ${jobs} of audio`);
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
