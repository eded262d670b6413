import { pino } from 'pino';
import { openDatabase } from '../../db/database.ts';
import { DatabaseIdentity, describeMismatch } from '../../ledger/database-identity.ts';
import { UsageError } from '../../lib/usage-error.ts';
import { openPayments } from '../../payments/x402/resolver.ts';
import { createReconcilers } from '../../reconcile/reconcilers.ts';
import { ReconcilerRunner } from '../../reconcile/runner.ts';
import { openAudioStore } from '../../speech/store/open-store.ts';
import { defineCommand, printLines } from './command.ts';
import { commandSettings, databaseFailure } from './command-settings.ts';
import { RECONCILE_SYNTAX, readSinceOptions } from './reconcile-options.ts';
import { reconcileSince } from './reconcile-since.ts';
import { hasFailed, turnLines } from './turn-lines.ts';
import { readWholeConfig } from './whole-config.ts';

const EXIT_FAILED = 1;

export const reconcileCommand = defineCommand({
  ...RECONCILE_SYNTAX,
  run: async (values, _words, context) => {
    const since = readSinceOptions(values);
    const config = readWholeConfig(await commandSettings(context), 'reconcile');
    const { databaseUrl, namedStatements } = config;
    const db = openDatabase(databaseUrl, { maxConnections: 4, namedStatements });
    const store = openAudioStore(config.jobs.audioStore);
    const x402 = config.x402?.rpcUrls ? openPayments(db, config.x402.asset, config.x402.rpcUrls) : undefined;
    try {
      const mismatch = await new DatabaseIdentity(db, config).check().catch((error) => {
        throw databaseFailure(context, "The database can't be used", error);
      });
      if (mismatch) throw new UsageError(`speechgate can't reconcile:\n${describeMismatch(mismatch)}`);
      const runner = new ReconcilerRunner({
        db,
        reconcilers: createReconcilers(config, db, store, x402),
        intervalMs: config.reconcileIntervalMs,
        log: pino({ level: 'silent' }),
      });
      if (since) return await reconcileSince(context, { config, db, x402, runner }, since);
      const results = await runner.turn();
      printLines(context, turnLines(results, config));
      return hasFailed(results) ? EXIT_FAILED : 0;
    } finally {
      await Promise.all([db.destroy(), store.close(), x402?.chain.close()]);
    }
  },
});
