import type { Attack } from '../attack.ts';
import type { Attempt } from '../attempt.ts';
import { type Plan, settledBefore } from '../plans.ts';
import type { Target } from '../targets/target.ts';
import { speakAfter } from '../world.ts';

const UNDER_WAY = 50;

async function killed(target: Target): Promise<void> {
  await target.kill();
  await target.start();
}

/** Kills the target while all tries wait at one point and restarts it. Then each client repeats its request. */
const killedAt = (name: string, plan: (attempt: Attempt) => Plan, isSpeaking = false): Attack => ({
  name: `kill -9 ${name}`,
  right: 'broken',
  atOnce: UNDER_WAY,
  meanwhile: killed,
  attempt: async (attempt) => {
    let asked = 0;
    const manner = isSpeaking
      ? speakAfter(async () => {
          asked += 1;
          if (asked === 1) await attempt.gathering.arrive(attempt);
        })
      : undefined;
    const { paid } = await attempt.prepare(attempt.post(attempt.text(manner)), plan(attempt));
    await attempt.send(paid);
    await attempt.gathering.arrive(attempt);
    await attempt.politely(paid);
  },
});

export const CRASHES: readonly Attack[] = [
  {
    name: 'kill -9 between the challenge and the payment',
    right: 'broken',
    atOnce: UNDER_WAY,
    meanwhile: killed,
    attempt: async (attempt) => {
      const { paid } = await attempt.prepare(attempt.post());
      await attempt.gathering.arrive(attempt);
      await attempt.politely(paid);
    },
  },
  killedAt('while the payment is verified', (attempt) => ({
    verify: async () => {
      await attempt.gathering.arrive(attempt);
      return undefined;
    },
  })),
  killedAt('between verify and settle, while it is spoken', () => ({}), true),
  killedAt('while the facilitator settles', (attempt) => ({
    settle: async () => {
      await attempt.gathering.arrive(attempt);
      return undefined;
    },
  })),
  killedAt('between settle and its answer', (attempt) => ({
    settle: () => settledBefore(() => attempt.gathering.arrive(attempt)),
  })),
  {
    name: 'kill -9 after the answer, which is asked for again',
    right: 'broken',
    atOnce: UNDER_WAY,
    meanwhile: killed,
    attempt: async (attempt) => {
      const { paid } = await attempt.prepare(attempt.post());
      await attempt.politely(paid);
      await attempt.gathering.arrive(attempt);
      await attempt.politely(paid);
    },
  },
];
