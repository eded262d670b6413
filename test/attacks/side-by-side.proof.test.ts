import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import type { Attack } from '../../attacks/attack.ts';
import { ATTACKS } from '../../attacks/attacks/all.ts';
import { COUNTS, type Count } from '../../attacks/judge.ts';
import { runLanes } from '../../attacks/lanes.ts';
import { type Outcome, runAttack } from '../../attacks/run.ts';
import { startSeller } from '../../attacks/targets/peers.ts';
import { openWorld } from '../../attacks/world.ts';
import { typescript } from '../../bench/targets/program.ts';
import { findBinary } from '../../src/sandbox/chain/anvil.ts';

const skip = findBinary() === undefined && 'anvil is not installed here';

/** Of an attack: those that wait are made all at once. */
const TRIES = 3;

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
    const { paid } = await attempt.prepare(attempt.post(), { settle: late });
    await attempt.send(paid, 'sent');
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

test('npm run attacks: nothing goes wrong in any attack on payment by x402, or fault during it', {
  skip,
}, async (t) => {
  const world = await openWorld();
  t.teardown(world.close);
  const outcomes: Outcome[] = [];
  await runLanes(world, 'ours', ATTACKS, { tries: TRIES }, (outcome) => outcomes.push(outcome), LANES);
  const wrong = outcomes.filter(({ counts }) => COUNTS.some((count) => counts[count] > 0));
  assert.deepEqual(wrong, []);
  assert.equal(outcomes.length, ATTACKS.length);
});

test('npm run attacks: each count finds a server that fails in its way', { skip }, async (t) => {
  const world = await openWorld();
  t.teardown(world.close);
  const runs = BAD.map(async ([manner, attack, expected]) => {
    const command = [process.execPath, ...typescript('attacks/servers/bad.ts')];
    const target = await startSeller(world, manner, command, { BAD: manner });
    const outcome = await runAttack(world, target, attack, { tries: 2, hungMs: 3_000 });
    assert.equal(outcome?.counts[expected], 2, `${manner}: ${JSON.stringify(outcome)}`);
  });
  await Promise.all(runs);
});
