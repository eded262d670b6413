import { setTimeout as sleep } from 'node:timers/promises';
import type { Fault } from './fault.ts';

const SECONDS = [-3_600, -600, -61, -5, -1, 1, 5, 61, 600, 3_600] as const;

/** The clock of one gateway steps, back or ahead, and is set right after a while. */
export const CLOCK: readonly Fault[] = [
  {
    ...{ name: 'clock step of gateway two', target: 'clock of gateway two', weight: 4, buries: ['gateway two'] },
    obstacle: ({ clock }) => (typeof clock === 'string' ? clock : undefined),
    strike: async ({ clock }, random) => {
      if (typeof clock === 'string') return;
      await clock.step(random.pick(SECONDS));
      await sleep(random.between(1_000, 8_000));
      await clock.step(0);
    },
  },
];
