import { type Logger, pino } from 'pino';
import type { TurnResult } from '../../src/reconcile/reconciler.ts';
import { createReconcilers } from '../../src/reconcile/reconcilers.ts';
import { ReconcilerRunner } from '../../src/reconcile/runner.ts';
import { openAudioStore } from '../../src/speech/store/open-store.ts';
import type { Gateway } from './gateway.ts';

/** A runner of the gateway's reconcilers, or of some of them, apart from its own one. */
export function testRunner(
  { db, config }: Gateway,
  { names, log = pino({ level: 'silent' }) }: { names?: readonly string[]; log?: Logger } = {},
): ReconcilerRunner {
  const { reconcileIntervalMs: intervalMs } = config;
  const reconcilers = createReconcilers(config, db, openAudioStore(config.jobs.audioStore)).filter(
    ({ name }) => !names || names.includes(name),
  );
  return new ReconcilerRunner({ db, reconcilers, intervalMs, log });
}

/** One turn of one reconciler. */
export async function runTurn(gateway: Gateway, name: string): Promise<TurnResult> {
  const [result] = await testRunner(gateway, { names: [name] }).turn();
  if (!result) throw new Error(`there is no reconciler ${name}`);
  return result;
}

/** What one reconciler does when it doesn't have the turn, or not any more, as a process that was frozen; its count. */
export async function runWithoutTurn({ db, config }: Gateway, name: string): Promise<number> {
  const reconcilers = createReconcilers(config, db, openAudioStore(config.jobs.audioStore));
  let count = 0;
  const done = (more: number) => {
    count += more;
  };
  await reconcilers
    .find((reconciler) => reconciler.name === name)
    ?.run({ signal: new AbortController().signal, steadyMs: Number.POSITIVE_INFINITY, done, report: () => {} });
  return count;
}
