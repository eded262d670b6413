/**
 * `npm run lab -- soak`, see lab/soak/README.md. Exit code: 0 when all counts are zero, 1 when not, 2 when it could not run.
 */
import { argumentsOf, readOptions, type SoakOptions, USAGE } from './options.ts';
import { isClean, printFailure, printRun } from './report.ts';
import { soak } from './run.ts';
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
  let options: SoakOptions;
  try {
    options = readOptions(process.argv.slice(2));
  } catch (error) {
    console.error(`${(error as Error).message}\n${USAGE}`);
    return EXIT_UNABLE;
  }
  const command = `npm run lab -- soak ${argumentsOf(options)}`;
  console.log(command);
  try {
    const run = await soak(options, owner);
    printRun(run);
    if (isClean(run.verdict)) return 0;
    printFailure(run);
    console.log(`\n${command}`);
    return 1;
  } finally {
    await owner.close();
  }
}
