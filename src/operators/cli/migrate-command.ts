import { faultOf, isConnectionError, isRefused } from '../../db/database-errors.ts';
import { APPLICATION_ROLE, migrate } from '../../db/migrate.ts';
import { printable } from '../../lib/printable.ts';
import { databaseUrlOf, defineCommand, EXIT_UNANSWERED, ExitError, printLines } from './command.ts';

const CHECK_URL =
  'Check that the server runs, and that DATABASE_URL names its host, port, user, password and database.';
const ASK = 'The failed migration changed nothing. Fix the cause, and run the command again.';

const USAGE = `speechgate admin migrate
Migrates the database in DATABASE_URL to the current schema. It has no options.`;

export const migrateCommand = defineCommand({
  usage: USAGE,
  run: async (_values, _words, context) => {
    const role = context.env.DATABASE_APP_ROLE?.trim() || APPLICATION_ROLE;
    const { applied, notValid, hasGranted, newer } = await migrate(databaseUrlOf(context.env), role).catch((error) => {
      const fault = `The schema can't be brought up to date: ${printable(String(faultOf(error)))}`;
      throw isConnectionError(error) || isRefused(error)
        ? new ExitError(`${fault}. ${CHECK_URL}`, EXIT_UNANSWERED)
        : new ExitError(`${fault}\n${ASK}`);
    });
    const current =
      newer.length > 0
        ? `A newer release has already applied ${newer.join(', ')}. This release works with that schema; nothing was changed.`
        : 'The schema is current.';
    printLines(context, [
      applied.length > 0 ? `Applied ${applied.join(', ')}.` : current,
      ...notValid.map((name) => `Old rows violate ${name}; new rows cannot. Run npm run audit to list them.`),
      ...(hasGranted ? [`The role ${role} has the rights of the application.`] : []),
    ]);
    return 0;
  },
});
