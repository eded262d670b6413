/** `npm run soak`: docs/soak.md. Exit code 0 when all counts are zero, 1 when not, 2 when it could not be run. */
import { argumentsOf, type CommandOptions, readOptions, USAGE } from './options.ts';
import { isClean, printFailure, printRun, progressLine } from './report.ts';
import { type Run, soak } from './run.ts';
import { findTail } from './tail.ts';
import { Teardowns } from './teardowns.ts';

const EXIT_UNABLE = 2;

const owner = new Teardowns();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => void owner.close().finally(() => process.exit(EXIT_UNABLE)));
}
const exitCode = await main().catch((error) => {
  console.error(error);
  return EXIT_UNABLE;
});
process.exit(exitCode);

async function main(): Promise<number> {
  let options: CommandOptions;
  try {
    options = readOptions(process.argv.slice(2));
  } catch (error) {
    console.error(`${(error as Error).message}\n${USAGE}`);
    return EXIT_UNABLE;
  }
  console.log(`npm run soak -- ${argumentsOf(options)}`);
  const failed: Run[] = [];
  for (let turn = 1; turn <= options.again; turn++) {
    const run = await soakOnce(options);
    printRun(run);
    if (isClean(run.verdict)) continue;
    failed.push(run);
    printFailure(run, options);
  }
  if (options.again > 1) console.log(`failed ${failed.length} of ${options.again}`);
  const [first] = failed;
  if (!first) return 0;
  if (!options.isWhole) await findTail(first, options, soakOnce);
  return 1;
}

/** In a world that is gone afterwards. */
async function soakOnce(options: Parameters<typeof soak>[0]): Promise<Run> {
  const world = new Teardowns();
  owner.teardown(() => world.close());
  try {
    return await soak(options, world, progressLine());
  } finally {
    await world.close();
  }
}
