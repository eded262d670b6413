import { setTimeout as sleep } from 'node:timers/promises';
import type { Attack } from '../attack.ts';
import type { Leaving } from '../http.ts';
import type { Manner } from '../servers/upstream.ts';

const leaves = (name: string, leaving: Leaving, manner?: Manner): Attack => ({
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
  leaves('the caller leaves while it is spoken', 'sent', () => sleep(500)),
  leaves('the caller leaves after half of the answer', 'half'),
  leaves('the caller leaves before the last byte', 'last byte'),
];
