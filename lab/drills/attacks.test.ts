import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { findBinary } from '../../src/sandbox/chain/anvil.ts';
import { until } from '../../test/support/until.ts';
import type { Attack } from '../attacks/attack.ts';
import { ATTACKS } from '../attacks/attacks/all.ts';
import { COUNTS, type Count } from '../attacks/judge.ts';
import { runLanes } from '../attacks/lanes.ts';
import { type Outcome, runAttack } from '../attacks/run.ts';
import { nonceOf } from '../attacks/servers/facilitator.ts';
import { startSeller } from '../attacks/targets/peers.ts';
import { openWorld } from '../attacks/world.ts';
import { compiled } from '../bench/targets/program.ts';

const skip = findBinary() === undefined && 'anvil is not installed here';

const TRIES = 3;
/** Of an attack that restarts the service for each try. */
const RESTARTED_TRIES = 1;

/** Most of the time is waited for restarts and for what never answers. */
const LANES = 6;

/** The facilitator settles when the client has long left, and with it the judge, if that does not wait for it. */
const SETTLED_LATE: Attack = {
  name: 'the caller leaves for good, and its payment is settled after seconds',
  right: 'refused',
  attempt: async (attempt) => {
    const late = async () => {
      await sleep(2_000);
      return undefined;
    };
    const { paid, payment } = await attempt.prepare(attempt.post(), { settle: late });
    await attempt.send(paid, 'sent');
    const { calls } = attempt.world.facilitator;
    await until(() => calls.some((call) => nonceOf(call.paymentPayload) === nonceOf(payment)));
  },
};

/** How a server fails on purpose, the attack that shows it, and what the judge calls it. */
const BAD: readonly [manner: string, attack: Attack, found: Count][] = [
  ['swallow', named('nothing at all'), 'paid, not served'],
  ['swallow', SETTLED_LATE, 'paid, not served'],
  ['free', named('nothing at all'), 'served, not paid'],
  ['again', named('settle: `nonce_already_used`; who is asked to'), 'paid twice'],
  ['error', named('nothing at all'), 'wrong status'],
  ['hang', named('nothing at all'), 'hung'],
  ['crash', named('nothing at all'), 'crashed'],
];

function named(beginning: string): Attack {
  const attack = ATTACKS.find(({ name }) => name.startsWith(beginning));
  assert.ok(attack, beginning);
  return attack;
}

test('npm run attacks: no attack on an x402 payment succeeds', {
  skip,
}, async (t) => {
  const world = await openWorld();
  t.teardown(world.close);
  const outcomes: Outcome[] = [];
  const run = (attacks: readonly Attack[], tries: number) =>
    runLanes(world, 'ours', attacks, { tries }, (outcome) => outcomes.push(outcome), LANES);
  await Promise.all([
    run(
      ATTACKS.filter(({ atOnce }) => atOnce === undefined),
      TRIES,
    ),
    run(
      ATTACKS.filter(({ atOnce }) => atOnce !== undefined),
      RESTARTED_TRIES,
    ),
  ]);
  const wrong = outcomes.filter(({ counts }) => COUNTS.some((count) => counts[count] > 0));
  assert.deepEqual(wrong, []);
  assert.equal(outcomes.length, ATTACKS.length);
});

test('npm run attacks: each count detects a server with its fault', { skip }, async (t) => {
  const world = await openWorld();
  t.teardown(world.close);
  const runs = BAD.map(async ([manner, attack]) => {
    const command = [process.execPath, ...compiled('lab/attacks/servers/bad.ts')];
    const target = await startSeller(world, manner, command, { BAD: manner });
    return runAttack(world, target, attack, { tries: 2, hungMs: 3_000 });
  });
  const outcomes = await Promise.all(runs);
  for (const [index, [manner, , expected]] of BAD.entries()) {
    const outcome = outcomes[index];
    assert.equal(outcome?.counts[expected], 2, `${manner}: ${JSON.stringify(outcome)}`);
  }
});
