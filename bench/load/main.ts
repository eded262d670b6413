import { type Burst, type BurstResult, runBurst } from './burst.ts';
import { type ClosedLoop, type ClosedLoopResult, runClosedLoop } from './closed-loop.ts';
import { type Crowd, type CrowdResult, endCrowd, gatherCrowd } from './crowd.ts';
import { type Mix, type MixResult, runMix } from './mix.ts';
import { type OpenLoop, type OpenLoopResult, runOpenLoop } from './open-loop.ts';

/** What the process of the load can be told to do, one at a time. */
export type Job = ClosedLoop | OpenLoop | Burst | Mix | Crowd | { readonly kind: 'crowd-end' };
export type Outcome =
  | { readonly result: ClosedLoopResult | OpenLoopResult | BurstResult | MixResult | CrowdResult }
  | { readonly failure: string };

process.on('message', async (job: Job) => {
  let outcome: Outcome;
  try {
    outcome = { result: await run(job) };
  } catch (error) {
    outcome = { failure: error instanceof Error ? error.message : String(error) };
  }
  process.send?.(outcome);
});
process.once('disconnect', () => process.exit());

function run(job: Job) {
  switch (job.kind) {
    case 'closed-loop':
      return runClosedLoop(job);
    case 'open-loop':
      return runOpenLoop(job);
    case 'burst':
      return runBurst(job);
    case 'mix':
      return runMix(job);
    case 'crowd':
      return gatherCrowd(job);
    case 'crowd-end':
      return endCrowd();
  }
}
