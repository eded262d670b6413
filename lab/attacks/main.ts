import assert from 'node:assert/strict';
import { t as root, test } from 'tap';
import { testChain } from '../../test/support/chain.ts';
import { writeFigures } from '../bench/report/docs.ts';
import { commitOfCheckout } from '../bench/report/machine.ts';
import { installPeers } from '../bench/targets/peers.ts';
import { ATTACKS } from './attacks/all.ts';
import { runLanes } from './lanes.ts';
import { readOptions } from './options.ts';
import { report, summary } from './report/table.ts';
import type { Outcome } from './run.ts';
import { openWorld } from './world.ts';

const LONGEST_MS = 24 * 3_600_000;

const options = readOptions(process.argv.slice(2));
const { targets, tries } = options;
const attacks = ATTACKS.filter(({ name }) => options.only(name));
assert.ok(attacks.length > 0, 'No attack has a name that begins so.');
root.setTimeout(LONGEST_MS);
const { chain, skip } = await testChain();

test(options.command, { skip, timeout: LONGEST_MS }, async (t) => {
  const startedAt = performance.now();
  const progress = (message: string) =>
    console.error(`${Math.round((performance.now() - startedAt) / 1000)} s  ${message}`);
  const commit = await commitOfCheckout();
  if (targets.some((target) => target !== 'ours')) await installPeers('lab/attacks/peers', progress);
  const outcomes: Outcome[] = [];
  const add = (outcome: Outcome): void => {
    outcomes.push(outcome);
    const { target, attack, counts, example } = outcome;
    const wrong = Object.entries(counts).filter(([, count]) => count > 0);
    progress(`${target}: ${attack}: ${wrong.map(([count, number]) => `${number} ${count}`).join(', ') || 'nothing'}`);
    if (example !== undefined) console.error(`    ${example}`);
  };
  const world = await openWorld(t, chain);
  for (const target of targets) await runLanes(world, target, attacks, tries, add);

  const run = { attacks, outcomes, options, commit };
  const text = await report(run);
  console.log(text);
  const wrong = outcomes.filter(({ target, counts }) => target === 'ours' && Object.values(counts).some(Boolean));
  assert.deepEqual(
    wrong.map(({ attack }) => attack),
    [],
    'attacks in which ours is not 0',
  );
  const missing = attacks.length * targets.length - outcomes.length;
  assert.equal(missing, 0, 'attacks that were not judged, since this machine was too busy');
  if (!options.isWritten) return;
  await writeFigures('lab/attacks/README.md', text);
  await writeFigures('docs/security.md', await summary(run));
});
