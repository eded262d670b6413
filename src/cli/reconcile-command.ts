import { pino } from 'pino';
import { openAudioStore } from '../audio/open-store.ts';
import { openDatabase } from '../db/database.ts';
import { faultOf } from '../db/database-errors.ts';
import { Belonging, describeMismatch } from '../ledger/belonging.ts';
import type { TurnResult } from '../reconcile/reconciler.ts';
import { createReconcilers } from '../reconcile/reconcilers.ts';
import { ReconcilerRunner } from '../reconcile/runner.ts';
import { openPayments } from '../x402/open-payments.ts';
import { endWith } from './arguments.ts';
import { commandSettings } from './command-settings.ts';
import { printable } from './printable.ts';
import { readReconcileOptions } from './reconcile-options.ts';
import { reconcileSince } from './reconcile-since.ts';
import { readWholeConfig } from './whole-config.ts';

/**
 * `npm run reconcile` runs every reconciler once. With `-- --since TIME`, for a database that was restored to that moment,
 * it also looks for what processor and chain have known since then; reconcile-options.ts has the other options.
 */
const options = readReconcileOptions(process.argv.slice(2));
if ('fault' in options) {
  endWith(options.fault);
}
const config = readWholeConfig(await commandSettings(), 'reconcile');
const { databaseUrl, namedStatements } = config;
const db = openDatabase(databaseUrl, { maxConnections: 4, namedStatements });
const store = openAudioStore(config.jobs.audioStore);
const belonging = new Belonging(db, config);
// A database that is away is told by each reconciler.
const mismatch = await belonging.check().catch(() => undefined);
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
  process.exitCode = options.since
    ? await reconcileSince({ config, db, x402, runner, print }, options.since)
    : print(await runner.turn());
} finally {
  await Promise.all([db.destroy(), store.close(), x402?.chain.close()]);
}

/** Prints what a turn has done; tells the exit code. */
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
  if (outcome === 'skipped') return 'skipped: another process is at it';
  if (outcome === 'done') return `${count} done`;
  return printable(`FAILED after ${count} done: ${faultOf(error as Error)}`);
}
