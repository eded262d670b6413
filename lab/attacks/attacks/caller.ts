import { setTimeout as sleep } from 'node:timers/promises';
import type { Mode } from '../../../test/support/stub-upstream.ts';
import type { Attack } from '../attack.ts';
import type { Leaving } from '../http.ts';
import { speakAfter } from '../world.ts';

const leaves = (name: string, leaving: Leaving, manner?: Mode): Attack => ({
  name,
  right: 'refused',
  attempt: async (attempt) => {
    const { paid } = await attempt.prepare(attempt.post(attempt.text(manner)));
    await attempt.send(paid, leaving);
    await attempt.politely(paid);
  },
});

export const HANG_UPS: readonly Attack[] = [
  leaves('the caller leaves in the middle of its request', 'half sent'),
  leaves('the caller leaves before the answer', 'sent'),
  leaves(
    'the caller leaves while it is spoken',
    'sent',
    speakAfter(() => sleep(500)),
  ),
  leaves('the caller leaves after half of the answer', 'half'),
  leaves('the caller leaves before the last byte', 'last byte'),
];
