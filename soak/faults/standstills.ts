import { setTimeout as sleep } from 'node:timers/promises';
import { type Fault, heardThrough } from './fault.ts';
import { MOST_VISITS, placeOf, STEPS_OF_SERVICE } from './steps.ts';

/** Within it a process comes to its step, or the fault is over. */
const PATIENCE_MS = 30_000;
const POLL_MS = 50;
/** There others give back what it is about to deliver: what the fence and the process's registration are for. */
const FENCED = 'hold captured';
/** Beyond the longest lease, 31 s. */
const STANDS_MS = [33_000, 40_000] as const;

/**
 * Who stands still here has asked last whether it may deliver: its answer, which was given back meanwhile, arrives. It costs
 * the operator that answer (docs/threats.md).
 */
const DELIVERED: readonly string[] = ['speech captured', 'whole speech captured', 'stream captured'];

/**
 * A process stands still between two effects until others have taken over what it was at, and goes on: only what every
 * owner has to show, a fence or a lease that still runs, keeps it from having the second effect too.
 */
export const STANDSTILLS: readonly Fault[] = STEPS_OF_SERVICE.filter((step) => !DELIVERED.includes(step)).flatMap(
  (step) =>
    placeOf(step).map((name) => ({
      ...{ name: `${name} stands still at "${step}"`, target: name, buries: heardThrough(name) },
      weight: step === FENCED ? 2 : 0.04,
      strike: async ({ parts }, random) => {
        const part = parts[name];
        await part.kill();
        const visit = String(random.between(1, MOST_VISITS));
        const starting = part.start({
          SPEECHGATE_TEST_KILL_AT: step,
          SPEECHGATE_TEST_KILL_VISIT: visit,
          SPEECHGATE_TEST_KILL_SIGNAL: 'SIGSTOP',
        });
        const giveUpAt = performance.now() + PATIENCE_MS;
        while (!part.isFrozen && performance.now() < giveUpAt) await sleep(POLL_MS);
        if (part.isFrozen) {
          await sleep(random.between(...STANDS_MS));
          await part.thaw();
          await starting;
          return;
        }
        // It may still come to its step.
        await part.kill();
        await starting.catch(() => {});
        await part.start();
      },
    })),
);
