import { setTimeout as sleep } from 'node:timers/promises';
import { wallet } from '../../test/support/chain.ts';
import type { Attack } from './attack.ts';
import { Attempt } from './attempt.ts';
import { type Payment, paidTo } from './chain.ts';
import { Gathering } from './gathering.ts';
import { COUNTS, type Count, isCheated, judge } from './judge.ts';
import { nonceOf } from './plans.ts';
import type { Target } from './targets/target.ts';
import type { World } from './world.ts';

/** Counts the tries of an attack in which each fault occurred. */
export interface Outcome {
  readonly target: string;
  readonly attack: string;
  /** How often a batch was repeated because the machine slowed the facilitator down. */
  readonly repetitions: number;
  readonly counts: Readonly<Record<Count, number>>;
  /** Responses of the first wrong try, for debugging. */
  readonly example?: string;
}

/** Initial balance of a try's wallet in micro-USDC. */
const FUNDS = 10_000_000n;
/** Concurrent tries, and concurrent tries of an attack that mostly waits. */
const UNDER_WAY = 8;
const WAITING = 25;
/** No new transfer for this long means that all are included. */
const SETTLED_MS = 400;

/** The machine was too busy if a facilitator call took this long. The gateway's timeout is 5 seconds. */
const SLOWED_MS = 2_000;
const MOST_REPETITIONS = 5;
/** Faults that a busy machine can cause. */
const OF_TIME: readonly Count[] = ['wrong status', 'hung'];

interface Tried {
  readonly attempt: Attempt;
  readonly failure: unknown;
}

/**
 * Runs an attack and judges each try after settlement. A batch is repeated if tries failed only for lack of time while
 * the machine slowed the facilitator down. Money faults of our target always count, however slow the machine was.
 * @returns undefined when no repetition gave a verdict
 */
export async function runAttack(
  world: World,
  target: Target,
  attack: Attack,
  tries: number,
): Promise<Outcome | undefined> {
  const counts = Object.fromEntries(COUNTS.map((count) => [count, 0])) as Record<Count, number>;
  let example: string | undefined;
  let repetitions = 0;
  for (let left = tries; left > 0; ) {
    const size = Math.min(left, attack.atOnce ?? left);
    const judged = await runBatch(world, target, attack, size);
    if (judged.isSlowed) {
      repetitions += 1;
      if (repetitions >= MOST_REPETITIONS) return undefined;
      continue;
    }
    left -= size;
    for (const found of judged.found) for (const count of found) counts[count] += 1;
    example ??= judged.example;
  }
  return {
    target: target.name,
    attack: attack.name,
    repetitions,
    counts,
    ...(example !== undefined && { example }),
  };
}

interface Judged {
  readonly found: readonly (readonly Count[])[];
  readonly example: string | undefined;
  /** Some faults may come from lack of time, and the facilitator was slow. */
  readonly isSlowed: boolean;
}

async function runBatch(world: World, target: Target, attack: Attack, size: number): Promise<Judged> {
  const fromBlock = await world.chain.client.getBlockNumber();
  if (attack.atOnce !== undefined) await restart(target);
  const tried = await tryAll(world, target, attack, size);
  const isCrashed = !(await target.isAlive());
  const lastOutput = target.lastOutput();
  if (isCrashed) await restart(target);
  const payments = await paymentsOf(world, target, fromBlock, tried);
  const found = tried.map(({ attempt, failure }) => judge(attack, attempt, payments, failure, isCrashed));
  const first = tried.findIndex((_tried, index) => (found[index] ?? []).length > 0);
  const { attempt, failure } = tried[first] ?? {};
  const example = attempt && describe(found[first] ?? [], attempt, failure) + (isCrashed ? `\n${lastOutput}` : '');
  const nonces = noncesOf(tried);
  const wrong = found.flat();
  const isOurMoney = target.name === 'ours' && wrong.some((count) => !OF_TIME.includes(count));
  const isOfTime = wrong.some((count) => OF_TIME.includes(count)) && !isOurMoney;
  const isSlowed = world.facilitator.calls.some(
    ({ tookMs = 0, paymentPayload }) => tookMs > SLOWED_MS && nonces.has(nonceOf(paymentPayload)),
  );
  return { found, example, isSlowed: isOfTime && isSlowed };
}

async function restart(target: Target): Promise<void> {
  await target.kill();
  await target.start();
}

async function tryAll(world: World, target: Target, attack: Attack, size: number): Promise<Tried[]> {
  const gathering = new Gathering(size, async () => attack.meanwhile?.(target));
  const tried: Tried[] = [];
  let begun = 0;
  const work = async () => {
    while (begun < size) {
      begun += 1;
      const attempt = new Attempt(world, target, await wallet(world.chain.client, FUNDS), gathering);
      const failure = await attack.attempt(attempt).then(
        () => undefined,
        (error) => error ?? new Error('It has failed.'),
      );
      tried.push({ attempt, failure });
    }
  };
  const underWay = attack.atOnce === undefined ? (attack.waits ? WAITING : UNDER_WAY) : size;
  await Promise.all(Array.from({ length: underWay }, work));
  return tried;
}

/** Final payments. Clients that paid and received nothing first repeat their requests. */
async function paymentsOf(
  world: World,
  target: Target,
  fromBlock: bigint,
  tried: readonly Tried[],
): Promise<readonly Payment[]> {
  const payments = await settled(world, target, tried, fromBlock);
  const cheated = tried.filter(({ attempt }) => isCheated(attempt, payments));
  if (cheated.length === 0) return payments;
  await Promise.all(cheated.map(({ attempt }) => attempt.insist()));
  return settled(world, target, tried, fromBlock);
}

/** Payments after the facilitator has finished every call, including calls of clients that disconnected. */
async function settled(world: World, target: Target, tried: readonly Tried[], fromBlock: bigint) {
  const nonces = noncesOf(tried);
  const isSettling = () =>
    world.facilitator.calls.some((call) => call.isSettling && nonces.has(nonceOf(call.paymentPayload)));
  for (let known = -1; ; await sleep(SETTLED_MS)) {
    const isComplete = !isSettling();
    const payments = await paidTo(world.chain.client, target.payTo, fromBlock);
    if (isComplete && payments.length === known) return payments;
    known = payments.length;
  }
}

const noncesOf = (tried: readonly Tried[]): ReadonlySet<string> =>
  new Set(tried.flatMap(({ attempt }) => attempt.nonces));

function describe(found: readonly Count[], attempt: Attempt, failure: unknown): string {
  const answers = attempt.notes.map(({ answer, isDelivery }) =>
    isDelivery
      ? 'the audio'
      : `${answer.status}${answer.isWhole ? '' : ', not whole'} ${answer.body.toString('latin1', 0, 300)}`,
  );
  return [found.join(', '), ...answers.slice(0, 6), failure instanceof Error ? failure.stack : ''].join('\n    ');
}
