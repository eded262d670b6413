import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../random.ts';
import type { Answer, Breaker } from './http-link.ts';

export interface Break {
  readonly name: string;
  /** @param over resolves at the end of the fault. Calls that hang then fail. */
  begin(random: Random, over: Promise<unknown>): Breaker;
}

const LONGEST_DELAY_MS = 3_000;

const failure = (status: number): Answer => ({
  status,
  headers: { 'content-type': 'application/json' },
  body: Buffer.from('{"error":{"message":"a part has failed on purpose","type":"api_error"}}'),
});

export const BREAKS: readonly Break[] = [
  {
    name: 'late requests',
    begin: (random) => {
      const delayMs = random.between(50, LONGEST_DELAY_MS);
      return async (exchange) => {
        await sleep(delayMs);
        await exchange.relay();
      };
    },
  },
  {
    name: 'late answers',
    begin: (random) => {
      const delayMs = random.between(50, LONGEST_DELAY_MS);
      return async (exchange) => {
        const answer = await exchange.pass();
        await sleep(delayMs);
        exchange.answer(answer);
      };
    },
  },
  { name: 'lost requests', begin: () => (exchange) => exchange.reset() },
  {
    name: 'lost answers',
    begin: () => async (exchange) => {
      await exchange.pass();
      exchange.reset();
    },
  },
  { name: 'half answers', begin: () => async (exchange) => exchange.answerHalf(await exchange.pass()) },
  {
    name: 'requests made twice',
    begin: (random) => {
      const [isAtOnce, isFirstTold] = [random.chance(0.5), random.chance(0.5)];
      return async (exchange) => {
        const first = exchange.pass();
        if (!isAtOnce) await first;
        const answers = await Promise.all([first, exchange.pass()]);
        exchange.answer(answers[isFirstTold ? 0 : 1]);
      };
    },
  },
  {
    name: 'failures',
    begin: (random) => {
      const answer = failure(random.pick([500, 502, 503, 504, 507, 429]));
      return (exchange) => exchange.answer(answer);
    },
  },
  {
    name: 'failures of what was done',
    begin: (random) => {
      const answer = failure(random.pick([500, 502, 503, 504]));
      return async (exchange) => {
        await exchange.pass();
        exchange.answer(answer);
      };
    },
  },
  {
    name: 'requests that hang',
    begin: (_random, over) => async (exchange) => {
      await Promise.race([over, exchange.closed]);
      exchange.reset();
    },
  },
  {
    name: 'answers that hang',
    begin: (_random, over) => async (exchange) => {
      await exchange.pass();
      await Promise.race([over, exchange.closed]);
      exchange.reset();
    },
  },
];
