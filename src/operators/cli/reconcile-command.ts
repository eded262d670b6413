import { pino } from 'pino';
import { openDatabase } from '../../db/database.ts';
import { faultOf } from '../../db/database-errors.ts';
import { DatabaseIdentity, describeMismatch } from '../../ledger/database-identity.ts';
import { endWith, orEnd, readArguments } from '../../lib/arguments.ts';
import { printable } from '../../lib/printable.ts';
import { openPayments } from '../../payments/x402/resolver.ts';
import type { TurnResult } from '../../reconcile/reconciler.ts';
import { createReconcilers } from '../../reconcile/reconcilers.ts';
import { ReconcilerRunner } from '../../reconcile/runner.ts';
import { openAudioStore } from '../../speech/store/open-store.ts';
import { commandSettings, readWholeConfig } from './command-settings.ts';
import { RECONCILE_SYNTAX, readSinceOptions } from './reconcile-options.ts';
import { reconcileSince } from './reconcile-since.ts';

const { values } = readArguments(RECONCILE_SYNTAX);
const since = orEnd(() => readSinceOptions(values));
const config = readWholeConfig(await commandSettings(), 'reconcile');
const { databaseUrl, namedStatements } = config;
const db = openDatabase(databaseUrl, { maxConnections: 4, namedStatements });
const store = openAudioStore(config.jobs.audioStore);
const databaseIdentity = new DatabaseIdentity(db, config);
// If the database is unavailable, each reconciler reports it.
const mismatch = await databaseIdentity.check().catch(() => undefined);
if (mismatch) {
  endWith(`speechgate can't reconcile:\n${describeMismatch(mismatch)}`);
}
const x402 = config.x402?.rpcUrls ? openPayments(db, config.x402.asset, config.x402.rpcUrls) : undefined;
const runner = new ReconcilerRunner({
  db,
  reconcilers: createReconcilers(config, db, store, x402),
  intervalMs: config.reconcileIntervalMs,
  log: pino({ level: 'silent' }),
});
try {
  process.exitCode = since
    ? await reconcileSince({ config, db, x402, runner, print }, since)
    : print(await runner.turn());
} finally {
  await Promise.all([db.destroy(), store.close(), x402?.chain.close()]);
}

function print(results: readonly TurnResult[]): 0 | 1 {
  for (const result of results) {
    console.log(`${result.name.padEnd(18)} ${describe(result)}`);
    for (const problem of result.problems ?? []) console.log(`${' '.repeat(19)}${printable(problem)}`);
  }
  if (!config.card) console.log('Card payment is off: STRIPE_SECRET_KEY is unset.');
  if (!x402) console.log('Direct payment in USDC is off: X402_PAY_TO or X402_RPC_URL is unset.');
  return results.some((result) => result.outcome === 'failed') ? 1 : 0;
}

function describe({ outcome, count, error }: TurnResult): string {
  if (outcome === 'skipped') return 'skipped: another process is running it';
  if (outcome === 'done') return `${count} done`;
  return printable(`FAILED after ${count} done: ${faultOf(error as Error)}`);
}
