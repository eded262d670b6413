import { within } from '../../src/lib/within.ts';
import { readSteps } from '../../test/support/steps.ts';
import type { ServiceName } from '../world/world.ts';
import { type Fault, heardThrough } from './fault.ts';

/** How long a step is waited for that nobody takes. */
const PATIENCE_MS = 15_000;
export const MOST_VISITS = 20;

/** Those that a process of the service can come to, which no command is. */
export const STEPS_OF_SERVICE = readSteps()
  .filter(({ place }) => !place.startsWith('cli/'))
  .map(({ name }) => name)
  .sort();

/** Those of jobs are taken by workers, and by gateways when they accept one. */
export const placeOf = (step: string): readonly ServiceName[] =>
  step.startsWith('job ') && !step.startsWith('job accept') ? ['worker'] : ['gateway one', 'gateway two'];

/**
 * A process is started so that it ends by itself at a step between two effects, at one of its next visits there: that
 * finds what a kill at any moment seldom hits.
 */
export const STEPS: readonly Fault[] = STEPS_OF_SERVICE.flatMap((step) =>
  placeOf(step).map((name) => ({
    ...{ name: `${name} ends at "${step}"`, target: name, weight: 0.5, buries: heardThrough(name) },
    strike: async ({ parts }, random) => {
      const part = parts[name];
      await part.kill();
      const visit = String(random.between(1, MOST_VISITS));
      // It may end there before it takes requests: by a reconciler's hand.
      await part.start({ SPEECHGATE_TEST_KILL_AT: step, SPEECHGATE_TEST_KILL_VISIT: visit }).catch(() => {});
      await within(PATIENCE_MS, part.ended());
      await part.kill();
      await part.start();
    },
  })),
);
