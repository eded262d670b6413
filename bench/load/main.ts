import { type ClosedLoop, type ClosedLoopResult, runClosedLoop } from './closed-loop.ts';
import { type OpenLoop, type OpenLoopResult, runOpenLoop } from './open-loop.ts';

/** What the process of the load can be told to do, one at a time. */
export type Job = ClosedLoop | OpenLoop;
export type Outcome = { readonly result: ClosedLoopResult | OpenLoopResult } | { readonly failure: string };

process.on('message', async (job: Job) => {
  let outcome: Outcome;
  try {
    outcome = { result: await (job.kind === 'closed-loop' ? runClosedLoop(job) : runOpenLoop(job)) };
  } catch (error) {
    outcome = { failure: error instanceof Error ? error.message : String(error) };
  }
  process.send?.(outcome);
});
process.once('disconnect', () => process.exit());
