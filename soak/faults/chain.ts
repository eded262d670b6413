import { setTimeout as sleep } from 'node:timers/promises';
import type { Fault } from './fault.ts';

/** The longest reorganisation, and how far the chain's clock goes ahead, in seconds. */
const DEEPEST = 3;
const FURTHEST_SECONDS = 30;

const clock = { target: 'chain', weight: 1 };

/** The chain itself, which is believed two blocks deep. */
export const CHAIN: readonly Fault[] = [
  {
    ...{ name: 'reorganisation', target: 'chain', weight: 4 },
    // All transactions land again: without that, who was paid at once (R44) loses what a real chain takes away too.
    strike: async ({ parts: { chain } }, random) => {
      for (let times = random.between(1, 3); times > 0; times--) {
        await chain.reorganize(random.between(1, DEEPEST));
        await sleep(random.between(50, 1_500));
      }
    },
  },
  {
    ...{ ...clock, name: 'a chain whose blocks are of the future' },
    strike: async ({ parts: { chain } }, random) => {
      await chain.stepClock(random.between(1, FURTHEST_SECONDS));
      await sleep(random.between(500, 5_000));
      await chain.stepClock(0);
    },
  },
];
