import { pino } from 'pino';
import { openDatabase } from '../../db/database.ts';
import { DatabaseIdentity, describeMismatch } from '../../ledger/database-identity.ts';
import { type Arguments, UsageError } from '../../lib/arguments.ts';
import { readMoment } from '../../lib/moment.ts';
import type { PaymentPurpose } from '../../payments/x402/payment.ts';
import { openPayments } from '../../payments/x402/resolver.ts';
import { createReconcilers } from '../../reconcile/reconcilers.ts';
import { ReconcilerRunner } from '../../reconcile/runner.ts';
import { openAudioStore } from '../../speech/store/open-store.ts';
import {
  commandSettings,
  databaseFailure,
  defineCommand,
  invalidSettings,
  printLines,
  readWholeConfig,
} from './command.ts';
import { type Decision, exitCodeOf, reconcileSince, type SinceOptions, turnLines } from './reconcile-since.ts';

const USAGE = `speechgate admin reconcile
Runs each reconciler once. With --since it also finds payments that are missing in a restored database.
  --since TIME            the time that the database was restored to, such as 2026-11-23T04:00:00Z
  --book                  with --since: books each transfer whose amount has only one possible purpose
  --deposit TX[:LOG]      with --since: books the transfer in this transaction (and log entry) as a deposit; can be repeated
  --speech TX[:LOG]       with --since: books it as a payment for speech; can be repeated
  --json                  with --since: prints one JSON object`;

const TRANSFER = /^(0x[0-9a-fA-F]{64})(?::(\d{1,7}))?$/;

const OPTIONS = {
  since: { type: 'string' },
  book: { type: 'boolean', default: false },
  deposit: { type: 'string', multiple: true },
  speech: { type: 'string', multiple: true },
  json: { type: 'boolean', default: false },
} as const;

export const RECONCILE_SYNTAX = { usage: USAGE, options: OPTIONS };

export const reconcileCommand = defineCommand({
  ...RECONCILE_SYNTAX,
  run: async (values, _words, context) => {
    const since = readSinceOptions(values);
    const config = await readWholeConfig(await commandSettings(context), 'reconcile');
    const { databaseUrl, namedStatements } = config;
    const db = openDatabase(databaseUrl, { maxConnections: 4, namedStatements });
    const store = openAudioStore(config.jobs.audioStore);
    const x402 = config.x402?.rpcUrls ? openPayments(db, config.x402.asset, config.x402.rpcUrls) : undefined;
    try {
      const mismatch = await new DatabaseIdentity(db, config).check().catch((error) => {
        throw databaseFailure(context, "The database can't be used", error);
      });
      if (mismatch) throw invalidSettings(`speechgate can't reconcile:\n${describeMismatch(mismatch)}`);
      const runner = new ReconcilerRunner({
        db,
        reconcilers: createReconcilers(config, db, store, x402),
        intervalMs: config.reconcileIntervalMs,
        log: pino({ level: 'silent' }),
      });
      if (since) return await reconcileSince(context, { config, db, x402, runner }, since);
      const results = await runner.turn();
      printLines(context, turnLines(results, config));
      return exitCodeOf(results);
    } finally {
      await Promise.all([db.destroy(), store.close(), x402?.chain.close()]);
    }
  },
});

/** Undefined without any option. @throws UsageError */
export function readSinceOptions(values: Arguments<typeof OPTIONS>['values']): SinceOptions | undefined {
  const { since: text, book, deposit = [], speech = [], json } = values;
  if (text === undefined) {
    if (book || json || deposit.length + speech.length > 0)
      throw new UsageError('--book, --deposit, --speech and --json need --since TIME. Nothing was booked.');
    return undefined;
  }
  const since = readMoment(text);
  if (!since) {
    throw new UsageError(
      `--since is ${text}, but it must be a date, or a date with time and zone such as 2026-11-23T04:00:00Z.`,
    );
  }
  if (since.getTime() > Date.now())
    throw new UsageError(
      `--since is ${text}, which is in the future. Give the time that the database was restored to.`,
    );
  const decisions = [
    ...deposit.map((each) => readDecision('deposit', each)),
    ...speech.map((each) => readDecision('speech', each)),
  ];
  return { since, bookPlain: book, decisions, json };
}

function readDecision(purpose: PaymentPurpose, text: string): Decision {
  const [, transaction, logIndex] = TRANSFER.exec(text) ?? [];
  if (!transaction)
    throw new UsageError(`--${purpose} ${text} is not a transfer. Give TX or TX:LOG as this command prints it.`);
  const place = logIndex === undefined ? undefined : Number(logIndex);
  return { transaction: transaction.toLowerCase(), logIndex: place, purpose };
}
