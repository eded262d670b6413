import { commitOfCheckout } from '../bench/report/machine.ts';
import { installPeers } from '../bench/targets/peers.ts';
import { PROJECT } from '../bench/targets/program.ts';
import { compileService } from '../test/compile.ts';
import type { Attack } from './attack.ts';
import { ATTACKS } from './attacks/all.ts';
import { Kept } from './kept.ts';
import { runLanes } from './lanes.ts';
import { type Options, readOptions } from './options.ts';
import { writeDocs } from './report/docs.ts';
import { report } from './report/table.ts';
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
  const kept = options.kept === undefined ? undefined : new Kept(options.kept, { commit, tries: options.tries });
  const outcomes = await runAll(options, attacks, kept);
  const text = await report({ attacks, outcomes, options, commit });
  console.log(text);
  const wrong = outcomes.filter(({ target, counts }) => target === 'ours' && Object.values(counts).some(Boolean));
  if (wrong.length > 0)
    throw new Error(`Ours is not 0 in ${wrong.length} attacks: ${wrong.map(({ attack }) => attack)}.`);
  const missing = attacks.length * options.targets.length - outcomes.length;
  if (missing > 0) throw new Error(`${missing} attacks were not judged: this machine was too busy for them.`);
  if (options.isWritten) await writeDocs(text);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}

/** Those that were kept, and all others, which are made. */
async function runAll(options: Options, attacks: readonly Attack[], kept: Kept | undefined): Promise<Outcome[]> {
  const { targets, tries, isExplained } = options;
  const isOf =
    (target: string, { name }: Attack) =>
    (outcome: Outcome) =>
      outcome.target === target && outcome.attack === name;
  const before = kept?.outcomes() ?? [];
  const outcomes = targets.flatMap((target) => attacks.flatMap((attack) => before.find(isOf(target, attack)) ?? []));
  const left = targets.map((target) => ({
    target,
    attacks: attacks.filter((attack) => !outcomes.some(isOf(target, attack))),
  }));
  if (left.every((each) => each.attacks.length === 0)) return outcomes;
  if (left.some(({ target, attacks }) => target !== 'ours' && attacks.length > 0)) {
    await installPeers('attacks/peers', progress);
  }
  const tell = (outcome: Outcome): void => {
    outcomes.push(outcome);
    kept?.add(outcome);
    const { target, attack, counts, example } = outcome;
    const wrong = Object.entries(counts).filter(([, count]) => count > 0);
    const told = wrong.map(([count, number]) => `${number} ${count}`).join(', ') || 'nothing';
    progress(`${target}: ${attack}: ${told}`);
    if (isExplained && example !== undefined) console.error(`    ${example}`);
  };
  // Else each of many starts of the gateway would compile it.
  const service = await compileService(PROJECT);
  process.env.TEST_SERVICE = service.folder;
  try {
    const world = await openWorld();
    try {
      for (const { target, attacks } of left) await runLanes(world, target, attacks, { tries }, tell);
    } finally {
      await world.close();
    }
  } finally {
    await service.remove();
  }
  return outcomes;
}
