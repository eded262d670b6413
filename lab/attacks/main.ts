import { writeFigures } from '../bench/report/docs.ts';
import { commitOfCheckout } from '../bench/report/machine.ts';
import { installPeers } from '../bench/targets/peers.ts';
import type { Attack } from './attack.ts';
import { ATTACKS } from './attacks/all.ts';
import { runLanes } from './lanes.ts';
import { type Options, readOptions } from './options.ts';
import { report, summary } from './report/table.ts';
import type { Outcome } from './run.ts';
import { openWorld } from './world.ts';

const startedAt = performance.now();
const seconds = (): number => Math.round((performance.now() - startedAt) / 1000);
const progress = (message: string): void => console.error(`${String(seconds()).padStart(5)} s  ${message}`);

try {
  const options = readOptions(process.argv.slice(2));
  const attacks = ATTACKS.filter(({ name }) => options.only(name));
  if (attacks.length === 0) throw new Error('No attack has a name that begins so.');
  const commit = await commitOfCheckout();
  const outcomes = await runAll(options, attacks);
  const run = { attacks, outcomes, options, commit };
  const text = await report(run);
  console.log(text);
  const wrong = outcomes.filter(({ target, counts }) => target === 'ours' && Object.values(counts).some(Boolean));
  if (wrong.length > 0)
    throw new Error(`Ours is not 0 in ${wrong.length} attacks: ${wrong.map(({ attack }) => attack)}.`);
  const missing = attacks.length * options.targets.length - outcomes.length;
  if (missing > 0) throw new Error(`${missing} attacks were not judged: this machine was too busy for them.`);
  if (options.isWritten) {
    await writeFigures('lab/attacks/README.md', text);
    await writeFigures('docs/security.md', await summary(run));
  }
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}

async function runAll({ targets, tries }: Options, attacks: readonly Attack[]): Promise<Outcome[]> {
  if (targets.some((target) => target !== 'ours')) await installPeers('lab/attacks/peers', progress);
  const outcomes: Outcome[] = [];
  const add = (outcome: Outcome): void => {
    outcomes.push(outcome);
    const { target, attack, counts, example } = outcome;
    const wrong = Object.entries(counts).filter(([, count]) => count > 0);
    progress(`${target}: ${attack}: ${wrong.map(([count, number]) => `${number} ${count}`).join(', ') || 'nothing'}`);
    if (example !== undefined) console.error(`    ${example}`);
  };
  const world = await openWorld();
  try {
    for (const target of targets) await runLanes(world, target, attacks, { tries }, add);
  } finally {
    await world.close();
  }
  return outcomes;
}
