import { type Crowd, type CrowdResult, endCrowd, gatherCrowd } from './crowd.ts';
import { type Load, type LoadResult, runLoad } from './load.ts';

export type Job = Load | Crowd | { readonly kind: 'crowd-end' };
export type Outcome = { readonly result: LoadResult | CrowdResult } | { readonly failure: string };

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
    case 'load':
      return runLoad(job);
    case 'crowd':
      return gatherCrowd(job);
    case 'crowd-end':
      return endCrowd();
  }
}
