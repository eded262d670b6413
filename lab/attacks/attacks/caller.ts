import { setTimeout as sleep } from 'node:timers/promises';
import type { Mode } from '../../../test/support/stub-upstream.ts';
import type { HangUp } from '../../soak/callers/line.ts';
import type { Attack } from '../attack.ts';
import { audioOf, speakAfter } from '../world.ts';

const AUDIO_BYTES = audioOf('').length;
/** The server gets this time to start work. */
const SENT: HangUp = { afterMs: 50 };

const leaves = (name: string, leaving: HangUp | 'in its request', manner?: Mode): Attack => ({
  name,
  right: 'refused',
  attempt: async (attempt) => {
    const { paid } = await attempt.prepare(attempt.post(attempt.text(manner)));
    if (leaving === 'in its request') {
      const headers = { ...paid.headers, 'content-length': String(paid.body?.length) };
      await attempt.send({ method: 'POST', path: paid.path, headers }, SENT);
    } else await attempt.send(paid, leaving);
    await attempt.politely(paid);
  },
});

export const HANG_UPS: readonly Attack[] = [
  leaves('the caller leaves in the middle of its request', 'in its request'),
  leaves('the caller leaves before the answer', SENT),
  leaves(
    'the caller leaves while it is spoken',
    SENT,
    speakAfter(() => sleep(500)),
  ),
  leaves('the caller leaves after half of the answer', { afterBytes: AUDIO_BYTES / 2 }),
  leaves('the caller leaves before the last byte', { afterBytes: AUDIO_BYTES - 1 }),
];
