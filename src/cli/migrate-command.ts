import { faultOf, isAway, isRefused } from '../db/database-errors.ts';
import { APPLICATION_ROLE, migrate } from '../db/migrate.ts';
import { readArguments } from './arguments.ts';
import { databaseUrlOf } from './command-settings.ts';
import { printable } from './printable.ts';

const CHECK_URL = 'Is the server running, and does DATABASE_URL name its host, port, user, password and database?';
const ASK = 'Nothing was changed by the migration that failed: mend what the message says, and run it again.';

const USAGE = `speechgate migrate
Brings the database of DATABASE_URL to the current schema. It takes no options.`;

readArguments({}, USAGE);
const role = process.env.DATABASE_APP_ROLE?.trim() || APPLICATION_ROLE;
const { applied, notValid, hasGranted, newer } = await migrate(databaseUrlOf(process.env), role).catch((error) => {
  console.error(`The schema can't be brought up to date: ${printable(String(faultOf(error)))}`);
  console.error(isAway(error) || isRefused(error) ? CHECK_URL : ASK);
  process.exit(1);
});
const current =
  newer.length > 0
    ? `A newer release has migrated it: ${newer.join(', ')}. This release works with that; nothing was changed.`
    : 'The schema is current.';
console.log(applied.length > 0 ? `Applied ${applied.join(', ')}.` : current);
for (const name of notValid) {
  console.log(`Rows of an earlier release break ${name}, which new rows keep. npm run audit shows them.`);
}
if (hasGranted) console.log(`The role ${role} has the rights of the application.`);
