import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { within } from '../../src/lib/within.ts';
import type { ServiceName } from '../world/world.ts';
import type { Fault } from './fault.ts';

const SOURCE = fileURLToPath(new URL('../../src', import.meta.url));
/** How long a step is waited for that nobody takes. */
const PATIENCE_MS = 15_000;
const MOST_VISITS = 20;
/** Of names that are put together: any end that they have. */
const OUTCOMES = ['completed', 'failed'] as const;

/** The names of the steps between two effects at which a process can be killed, as the code has them. */
function namedSteps(): string[] {
  const files = readdirSync(SOURCE, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.ts'));
  const names = files.flatMap((path) =>
    [...readFileSync(join(SOURCE, path), 'utf8').matchAll(/testPoint\(['`]([^'`]+)['`]\)/g)].map(
      ([, name = '']) => name,
    ),
  );
  const whole = names.flatMap((name) =>
    name.includes('${') ? OUTCOMES.map((outcome) => name.replace(/\$\{.*?\}/, outcome)) : [name],
  );
  return [...new Set(whole)].sort();
}

/** Those of jobs are taken by workers, and by gateways when they accept one. */
const placeOf = (step: string): readonly ServiceName[] =>
  step.startsWith('job ') && !step.startsWith('job accept') ? ['worker'] : ['gateway one', 'gateway two'];

/**
 * A process is started so that it ends by itself at a step between two effects, at one of its next visits there: that
 * finds what a kill at any moment seldom hits.
 */
export const STEPS: readonly Fault[] = namedSteps().flatMap((step) =>
  placeOf(step).map((name) => ({
    ...{ name: `${name} ends at "${step}"`, target: name, weight: 0.5 },
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
