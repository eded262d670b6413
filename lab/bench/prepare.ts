import type { Expected } from './load/connection.ts';
import type { LoadResult } from './load/load.ts';
import type { Plan } from './load/requests.ts';
import { planOf, type Row } from './rows.ts';
import type { Setup } from './setup.ts';
import { challengeIn, takeSample } from './targets/sample.ts';
import { AUDIO_BYTES, CONCURRENCY } from './world.ts';

export interface Prepared {
  readonly row: Row;
  readonly plan: Plan;
  readonly expected: Expected;
  /** Requests a second during the warm-up. */
  readonly rate: number;
}

/** Ends after this many requests or seconds, whichever is first. */
export interface WarmUp {
  readonly requests: number;
  readonly seconds: number;
}

/**
 * Samples each target's response, then sends enough requests for V8 to compile the hot code. Prepares rows with the
 * same name once. @throws when a response is not as expected
 */
export async function prepareRows(
  setup: Setup,
  rows: readonly Row[],
  warmUp: WarmUp,
  onProgress: (message: string) => void,
): Promise<ReadonlyMap<string, Prepared>> {
  const prepared = new Map<string, Prepared>();
  for (const row of rows) {
    if (prepared.has(row.name)) continue;
    onProgress(`warming up: ${row.label}`);
    const work = await learn(setup, row);
    const { port, pid } = setup.target(row.target, row.processes);
    const { servedInAll, seconds } = await setup.load<LoadResult>(row, {
      kind: 'load',
      port,
      parts: [{ name: row.name, share: 1, ...work }],
      pace: { concurrency: CONCURRENCY },
      warmUpSeconds: 0,
      seconds: warmUp.seconds,
      most: warmUp.requests,
      targetPid: pid,
    });
    prepared.set(row.name, { row, ...work, rate: (servedInAll[row.name] as number) / seconds });
  }
  return prepared;
}

/** Samples the target's response. */
export async function learn(setup: Setup, row: Row): Promise<Pick<Prepared, 'plan' | 'expected'>> {
  const { port, program } = setup.target(row.target, row.processes);
  const plan = planOf(row, `http://127.0.0.1:${setup.stubs.upstream}`);
  const audio = { status: 200, bytes: AUDIO_BYTES };
  if (row.work !== 'challenge' && row.work !== 'paid') return { plan, expected: audio };
  if (row.target === 'prebuilt') {
    program.send(await takeSample(setup.target('ours').port, plan));
    await program.listens(port);
  }
  const sample = await takeSample(port, plan);
  const challenge = challengeIn(sample);
  if (row.work === 'paid') return { plan: { ...plan, payment: { by: 'direct', challenge } }, expected: audio };
  return { plan, expected: { status: 402, bytes: Buffer.from(sample.body, 'base64').length } };
}
