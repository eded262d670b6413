import { setTimeout as sleep } from 'node:timers/promises';
import type { Fault } from './fault.ts';

/** Longest reorganization in blocks. */
const DEEPEST = 3;

export const CHAIN: readonly Fault[] = [
  {
    ...{ name: 'reorganisation', target: 'chain', weight: 4 },
    // Includes all transactions again. A payee who confirms at once (R44) would lose those that a real chain drops.
    strike: async ({ parts: { chain } }, random) => {
      for (let times = random.between(1, 3); times > 0; times--) {
        await chain.reorganize(random.between(1, DEEPEST));
        await sleep(random.between(50, 1_500));
      }
    },
  },
];
