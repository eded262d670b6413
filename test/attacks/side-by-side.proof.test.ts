import assert from 'node:assert/strict';
import { test } from 'tap';
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

/** How a server fails on purpose, the attack that shows it, and what the judge calls it. */
const BAD: readonly [manner: string, attack: string, found: Count][] = [
  ['swallow', 'nothing at all', 'paid, not served'],
  ['free', 'nothing at all', 'served, not paid'],
  ['again', 'settle: `nonce_already_used`; who is asked to', 'paid twice'],
  ['error', 'nothing at all', 'wrong status'],
  ['hang', 'nothing at all', 'hung'],
  ['crash', 'nothing at all', 'crashed'],
];

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
  const runs = BAD.map(async ([manner, name, expected]) => {
    const attack = ATTACKS.find((each) => each.name.startsWith(name));
    assert.ok(attack, name);
    const command = [process.execPath, ...typescript('attacks/servers/bad.ts')];
    const target = await startSeller(world, manner, command, { BAD: manner });
    const outcome = await runAttack(world, target, attack, { tries: 2, hungMs: 3_000 });
    assert.equal(outcome?.counts[expected], 2, `${manner}: ${JSON.stringify(outcome)}`);
  });
  await Promise.all(runs);
});
