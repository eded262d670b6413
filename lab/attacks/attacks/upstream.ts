import { setTimeout as sleep } from 'node:timers/promises';
import {
  empty,
  hangBeforeHeaders,
  html,
  type Mode,
  openAiError,
  resetBeforeHeaders,
  resetInBody,
} from '../../../test/support/stub-upstream.ts';
import type { Attack } from '../attack.ts';
import { audioOf, speakAfter } from '../world.ts';

/** Restarts the target for each batch: a server that has seen failures may skip its upstream for a while. */
const failing = (name: string, manner: Mode): Attack => ({
  name,
  right: 'failed',
  atOnce: 50,
  attempt: async (attempt) => {
    const { paid } = await attempt.prepare(attempt.post(attempt.text(manner)));
    for (const again of [paid, paid]) await attempt.send(again);
  },
});

export const UPSTREAM_FAULTS: readonly Attack[] = [
  failing('speech: the upstream answers 500', openAiError(500)),
  failing('speech: the upstream answers nothing', empty()),
  failing('speech: the upstream answers HTML', html()),
  failing('speech: the upstream breaks off half way', resetInBody(audioOf('half').subarray(0, 1_000))),
  failing('speech: the connection is reset', resetBeforeHeaders()),
  failing('speech: the upstream hangs', hangBeforeHeaders()),
  failing(
    'speech: the upstream takes three seconds',
    speakAfter(() => sleep(3_000)),
  ),
];
