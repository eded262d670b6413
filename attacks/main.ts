import { installPeers } from '../bench/targets/peers.ts';
import { PROJECT } from '../bench/targets/program.ts';
import { compileService } from '../test/compile.ts';
import type { Attack } from './attack.ts';
import { ATTACKS } from './attacks/all.ts';
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
  if (options.targets.some((target) => target !== 'ours')) await installPeers('attacks/peers', progress);
  const attacks = ATTACKS.filter(({ name }) => options.only(name));
  // Else each of many starts of the gateway would compile it.
  const service = await compileService(PROJECT);
  process.env.TEST_SERVICE = service.folder;
  try {
    const outcomes = await runAll(options, attacks);
    const text = await report({ attacks, outcomes, options, minutes: seconds() / 60 });
    console.log(text);
    if (options.isWritten) await writeDocs(text);
  } finally {
    await service.remove();
  }
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}

async function runAll({ targets, tries, isExplained }: Options, attacks: readonly Attack[]): Promise<Outcome[]> {
  const world = await openWorld();
  const outcomes: Outcome[] = [];
  const tell = ({ target, attack, counts, example }: Outcome): void => {
    const wrong = Object.entries(counts).filter(([, count]) => count > 0);
    const told = wrong.map(([count, number]) => `${number} ${count}`).join(', ') || 'nothing';
    progress(`${target}: ${attack}: ${told}`);
    if (isExplained && example !== undefined) console.error(`    ${example}`);
  };
  try {
    for (const target of targets) outcomes.push(...(await runLanes(world, target, attacks, { tries }, tell)));
  } finally {
    await world.close();
  }
  return outcomes;
}
