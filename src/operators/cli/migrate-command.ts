import { faultOf, isConnectionError, isRefused } from '../../db/database-errors.ts';
import { APPLICATION_ROLE, migrate } from '../../db/migrate.ts';
import { readArguments } from '../../lib/arguments.ts';
import { printable } from '../../lib/printable.ts';
import { databaseUrlOf } from './command-settings.ts';

const CHECK_URL =
  'Check that the server runs, and that DATABASE_URL names its host, port, user, password and database.';
const ASK = 'The failed migration changed nothing. Fix the cause, and run the command again.';

const USAGE = `speechgate migrate
Migrates the database in DATABASE_URL to the current schema. It has no options.`;

readArguments({ usage: USAGE });
const role = process.env.DATABASE_APP_ROLE?.trim() || APPLICATION_ROLE;
const { applied, notValid, hasGranted, newer } = await migrate(databaseUrlOf(process.env), role).catch((error) => {
  console.error(`The schema can't be brought up to date: ${printable(String(faultOf(error)))}`);
  console.error(isConnectionError(error) || isRefused(error) ? CHECK_URL : ASK);
  process.exit(1);
});
const current =
  newer.length > 0
    ? `A newer release has already applied ${newer.join(', ')}. This release works with that schema; nothing was changed.`
    : 'The schema is current.';
console.log(applied.length > 0 ? `Applied ${applied.join(', ')}.` : current);
for (const name of notValid) {
  console.log(`Old rows violate ${name}; new rows cannot. Run npm run audit to list them.`);
}
if (hasGranted) console.log(`The role ${role} has the rights of the application.`);
