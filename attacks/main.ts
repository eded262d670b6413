import { installPeers } from '../bench/targets/peers.ts';
import { ATTACKS } from './attacks/all.ts';
import { runLanes } from './lanes.ts';
import { readOptions } from './options.ts';
import { writeDocs } from './report/docs.ts';
import { report } from './report/table.ts';
import { openWorld } from './world.ts';

const startedAt = performance.now();
const seconds = (): number => Math.round((performance.now() - startedAt) / 1000);
const progress = (message: string): void => console.error(`${String(seconds()).padStart(5)} s  ${message}`);

try {
  const options = readOptions(process.argv.slice(2));
  if (options.targets.some((target) => target !== 'ours')) await installPeers('attacks/peers', progress);
  const attacks = ATTACKS.filter(({ name }) => options.only(name));
  const world = await openWorld();
  try {
    const lanes = options.targets.map((target) =>
      runLanes(world, target, attacks, { tries: options.tries }, ({ attack, counts, example }) => {
        const wrong = Object.entries(counts).filter(([, count]) => count > 0);
        const told = wrong.map(([count, number]) => `${number} ${count}`).join(', ') || 'nothing';
        progress(`${target}: ${attack}: ${told}`);
        if (options.isExplained && example !== undefined) console.error(`    ${example}`);
      }),
    );
    const outcomes = (await Promise.all(lanes)).flat();
    const text = await report({ attacks, outcomes, options, minutes: seconds() / 60 });
    console.log(text);
    if (options.isWritten) await writeDocs(text);
  } finally {
    await world.close();
  }
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
