import { setTimeout as sleep } from 'node:timers/promises';
import { wallet } from '../../test/support/chain.ts';
import type { Attack } from './attacks.ts';
import { Attempt, Gathering, type Note } from './attempt.ts';
import { startTarget, type Target, type TargetName } from './targets.ts';
import { nonceOf, type Payment, paidTo, type World } from './world.ts';

/** Faults of a try, in the order of the table. */
export const COUNTS = [
  ...['paid, not served', 'served, not paid', 'paid twice'],
  ...['wrong status', 'hung', 'crashed'],
] as const;
export type Count = (typeof COUNTS)[number];

/** Counts the tries of an attack in which each fault occurred. */
export interface Outcome {
  readonly target: TargetName;
  readonly attack: string;
  /** How often a batch was repeated because the machine slowed the facilitator down. */
  readonly repetitions: number;
  readonly counts: Readonly<Record<Count, number>>;
  /** Responses of the first wrong try, for debugging. */
  readonly example: string | undefined;
}

/** Initial balance of a try's wallet in micro-USDC. */
const FUNDS = 10_000_000n;
/** Concurrent tries, and concurrent tries of an attack that mostly waits. */
const UNDER_WAY = 8;
const WAITING = 25;
/** Lanes for attacks that mostly wait, besides the one lane for the others. */
const LANES_OF_WAITING = 3;
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
 * Runs attacks against a target: one after the other in each lane, and each lane has its own server.
 * @param onOutcome called for each outcome, except where the machine was too busy for a verdict
 */
export async function runLanes(
  world: World,
  name: TargetName,
  attacks: readonly Attack[],
  tries: number,
  onOutcome: (outcome: Outcome) => void,
): Promise<void> {
  const run = async (left: Attack[]) => {
    const target = left.length > 0 ? await startTarget(world, name) : undefined;
    for (let attack = left.shift(); target && attack; attack = left.shift()) {
      const outcome = await runAttack(world, target, attack, tries);
      if (outcome) onOutcome(outcome);
    }
    await target?.kill();
  };
  const waits = ({ waits: isWaiting, atOnce }: Attack) => isWaiting === true || atOnce !== undefined;
  const waiting = attacks.filter(waits);
  const lanes = Array.from({ length: LANES_OF_WAITING }, () => run(waiting));
  await Promise.all([run(attacks.filter((attack) => !waits(attack))), ...lanes]);
}

/**
 * Runs an attack and judges each try after settlement. A batch is repeated if tries failed only for lack of time while
 * the machine slowed the facilitator down. Money faults of our target always count, however slow the machine was.
 * @returns undefined when no repetition gave a verdict
 */
async function runAttack(world: World, target: Target, attack: Attack, tries: number): Promise<Outcome | undefined> {
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
    for (const count of judged.found.flat()) counts[count] += 1;
    example ??= judged.example;
  }
  return { target: target.name, attack: attack.name, repetitions, counts, example };
}

async function runBatch(world: World, target: Target, attack: Attack, size: number) {
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
  const wrong = found.flat();
  const isOurMoney = target.name === 'ours' && wrong.some((count) => !OF_TIME.includes(count));
  const isOfTime = wrong.some((count) => OF_TIME.includes(count)) && !isOurMoney;
  const isSlowed = callsOf(world, tried).some(({ tookMs = 0 }) => tookMs > SLOWED_MS);
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
async function paymentsOf(world: World, target: Target, fromBlock: bigint, tried: readonly Tried[]) {
  const payments = await settled(world, target, tried, fromBlock);
  const cheated = tried.filter(({ attempt }) => attempt.delivered.size === 0 && paidBy(attempt, payments).length > 0);
  if (cheated.length === 0) return payments;
  await Promise.all(cheated.map(({ attempt }) => attempt.insist()));
  return settled(world, target, tried, fromBlock);
}

/** Payments after the facilitator has finished every call, including calls of clients that disconnected. */
async function settled(world: World, target: Target, tried: readonly Tried[], fromBlock: bigint) {
  for (let known = -1; ; await sleep(SETTLED_MS)) {
    const isComplete = !callsOf(world, tried).some((call) => call.isSettling);
    const payments = await paidTo(world.chain.client, target.payTo, fromBlock);
    if (isComplete && payments.length === known) return payments;
    known = payments.length;
  }
}

/** The facilitator's calls for the payments of these tries. */
function callsOf({ facilitator }: World, tried: readonly Tried[]) {
  const nonces = new Set(tried.flatMap(({ attempt }) => attempt.nonces));
  return facilitator.calls.filter(({ paymentPayload }) => nonces.has(nonceOf(paymentPayload)));
}

/**
 * Judges a try by transfers to the payee and by received bytes, not by what responses claim.
 * @param payments all transfers to the target's payee
 * @param failure exception of the try
 * @param isCrashed the target exited during the batch
 */
function judge(
  attack: Attack,
  attempt: Attempt,
  payments: readonly Payment[],
  failure: unknown,
  isCrashed: boolean,
): readonly Count[] {
  const own = paidBy(attempt, payments);
  const received = own.reduce((sum, { value }) => sum + value, 0n);
  const served = attempt.delivered.size;
  const found: Record<Count, boolean> = {
    'paid, not served': own.length > 0 && served === 0,
    'served, not paid': received < BigInt(served) * attempt.price,
    'paid twice': served > 0 && own.length > served,
    'wrong status': failure !== undefined || attempt.notes.some((note) => isWrong(attack, note)),
    hung: attempt.notes.some(({ answer }) => answer.hasHungUp),
    crashed: isCrashed,
  };
  return COUNTS.filter((count) => found[count]);
}

const paidBy = ({ payer }: Attempt, payments: readonly Payment[]): Payment[] =>
  payments.filter((payment) => payment.payer.toLowerCase() === payer.address.toLowerCase());

/** A challenge (402) and a 409 ("retry later") are never wrong: every attack may meet them. */
function isWrong({ right }: Attack, { answer, isPaid, isDelivery }: Note): boolean {
  if (answer.hasHungUp) return false;
  if (!answer.isWhole) return right !== 'broken';
  const { status } = answer;
  if (status === 200) return !isDelivery;
  if (right === 'served' && isPaid) return status !== 409;
  return status < 400 || status >= (right === 'refused' || right === 'served' ? 500 : 600);
}

function describe(found: readonly Count[], attempt: Attempt, failure: unknown): string {
  const answers = attempt.notes.map(({ answer, isDelivery }) => {
    const shown = `${answer.status}${answer.isWhole ? '' : ', not whole'} ${answer.body.toString('latin1', 0, 300)}`;
    return isDelivery ? 'the audio' : shown;
  });
  return [found.join(', '), ...answers.slice(0, 6), failure instanceof Error ? failure.stack : ''].join('\n    ');
}
