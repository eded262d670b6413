import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { openAudioStore } from '../../src/audio/open-store.ts';
import type { Database } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { pruneNonces } from '../../src/ledger/wallets.ts';
import { RollingWindow } from '../../src/limits/rolling-window.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { createReconcilers } from '../../src/reconcile/reconcilers.ts';
import { ReconcilerRunner } from '../../src/reconcile/runner.ts';
import { startCheckout } from '../../src/sandbox/checkout/checkout-server.ts';
import { readConfig } from '../../src/settings/config.ts';
import { openPayments } from '../../src/x402/open-payments.ts';
import { leaveWindows } from '../../test/support/leftovers.ts';
import { PAY_TO } from './fill/names.ts';

/** Something that was done, and how long it took. */
export interface Timed {
  readonly what: string;
  readonly seconds: number;
  /** Rows, or whatever it counts. */
  readonly count?: number;
}

/** One turn of each reconciler, one after the other. */
export async function timeReconcilers(db: Database, databaseUrl: string): Promise<Timed[]> {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-growth-'));
  const checkout = await startCheckout({ dataDir: folder, secretKey: 'sk_test_growth' });
  const read = readConfig({
    ...{ DATABASE_URL: databaseUrl, DATA_DIR: folder },
    ...{ STRIPE_SECRET_KEY: 'sk_test_growth', STRIPE_API_BASE: checkout.apiBase, CHECKOUT_ORIGIN: checkout.origin },
    // Nothing is in doubt, so that nobody asks the node.
    ...{ X402_PAY_TO: PAY_TO, X402_FACILITATOR_URL: 'http://127.0.0.1:1', X402_RPC_URL: 'http://127.0.0.1:1' },
    ...{ FEEDBACK_SECRET: 'the secret of a ledger that is measured', SMTP_URL: 'smtp://127.0.0.1:1' },
    ...{ FEEDBACK_FROM: 'from@speech.example', FEEDBACK_TO: 'to@speech.example' },
  });
  if (read.outcome === 'faulty' || !read.config.x402?.rpcUrls) throw new Error('the settings are faulty');
  const { config } = read;
  const { asset, rpcUrls } = read.config.x402;
  const store = openAudioStore(config.jobs.audioStore);
  const payments = openPayments(db, asset, rpcUrls as NonNullable<typeof rpcUrls>);
  const times: Timed[] = [];
  try {
    for (const reconciler of createReconcilers(config, db, store, payments)) {
      const log = pino({ level: 'silent' });
      const runner = new ReconcilerRunner({ db, reconcilers: [reconciler], intervalMs: 1, log });
      const begunAt = performance.now();
      const [result] = await runner.turn();
      if (result?.outcome !== 'done') throw new Error(`${reconciler.name} has failed`, { cause: result?.error });
      times.push({ what: reconciler.name, seconds: since(begunAt), count: result.count });
    }
  } finally {
    await Promise.all([store.close(), payments.chain.close(), checkout.close()]);
    await rm(folder, { recursive: true, force: true });
  }
  return times;
}

/** Windows that are over, beside the nonces that the filling leaves. */
const WINDOWS = 200_000;

/** A backlog is pruned until nothing is left. */
export async function timePruning(db: Database): Promise<Timed[]> {
  await leaveWindows(db, WINDOWS);
  const limits = new RollingWindow(db, { max: 30, windowSeconds: 60 }, new Metrics());
  const times: Timed[] = [];
  for (const [what, prune] of [
    ['spent nonces', () => pruneNonces(db)],
    ['rate windows', () => limits.prune()],
  ] as const) {
    const begunAt = performance.now();
    let count = 0;
    for (let pruned = await prune(); pruned > 0; pruned = await prune()) count += pruned;
    times.push({ what, seconds: since(begunAt), count });
  }
  return times;
}

/** Throws with what the audit has found. */
export async function timeAudit(db: Database, onProgress: (message: string) => void): Promise<Timed[]> {
  const times: Timed[] = [];
  const findings = await audit(db, (what) => {
    const begunAt = performance.now();
    return () => {
      times.push({ what, seconds: since(begunAt) });
      onProgress(`audited in ${since(begunAt).toFixed(1)} s: ${what}`);
    };
  });
  if (findings.length > 0) throw new Error(`the audit has found: ${findings.map(({ rule }) => rule).join('; ')}`);
  return times;
}

const since = (begunAt: number): number => (performance.now() - begunAt) / 1000;
