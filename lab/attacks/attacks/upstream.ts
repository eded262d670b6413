import { setTimeout as sleep } from 'node:timers/promises';
import type { Attack } from '../attack.ts';
import type { Manner } from '../servers/upstream.ts';

/** Restarts the target for each batch: a server that has seen failures may skip its upstream for a while. */
const failing = (name: string, manner: Manner): Attack => ({
  name,
  right: 'failed',
  atOnce: 50,
  attempt: async (attempt) => {
    const { paid } = await attempt.prepare(attempt.post(attempt.text(manner)));
    for (const again of [paid, paid]) await attempt.send(again);
  },
});

export const UPSTREAM_FAULTS: readonly Attack[] = [
  failing('speech: the upstream answers 500', 'error'),
  failing('speech: the upstream answers nothing', 'empty'),
  failing('speech: the upstream answers HTML', 'html'),
  failing('speech: the upstream breaks off half way', 'half'),
  failing('speech: the connection is reset', 'reset'),
  failing('speech: the upstream hangs', 'hang'),
  failing('speech: the upstream takes three seconds', () => sleep(3_000)),
];
