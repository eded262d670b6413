import { connectionFix, faultOf, isConnectionError, isRefused } from '../../db/database-errors.ts';
import { APPLICATION_ROLE, migrate } from '../../db/migrate.ts';
import { printable } from '../../lib/printable.ts';
import { databaseUrlOf, defineCommand, EXIT_UNANSWERED, ExitError, printLines } from './command.ts';

const ASK = 'The failed migration changed nothing. Fix the cause, and run the command again.';

const USAGE = `speechgate admin migrate
Migrates the database in DATABASE_URL to the current schema. It has no options.`;

export const migrateCommand = defineCommand({
  usage: USAGE,
  run: async (_values, _words, context) => {
    const named = context.env.DATABASE_APP_ROLE?.trim();
    const role = named || APPLICATION_ROLE;
    const { applied, notValid, hasGranted, newer } = await migrate(databaseUrlOf(context.env), role).catch((error) => {
      const fault = `The database schema can't be migrated: ${printable(String(faultOf(error)))}`;
      throw isConnectionError(error) || isRefused(error)
        ? new ExitError(`${fault}. ${connectionFix(error)}`, EXIT_UNANSWERED)
        : new ExitError(`${fault}\n${ASK}`);
    });
    const current =
      newer.length > 0
        ? `A newer release has already applied ${newer.join(', ')}. This release works with that schema, so nothing was changed.`
        : 'The database schema is current. Nothing was changed.';
    printLines(context, [
      applied.length > 0 ? `Applied ${applied.join(', ')}.` : current,
      ...notValid.map(
        (name) => `Some old rows violate the constraint ${name}; new rows can't. Run npm run audit to list them.`,
      ),
      ...(hasGranted ? [`The database role ${role} has the rights that the service needs.`] : []),
      ...(named && !hasGranted && newer.length === 0
        ? [
            `${role} of DATABASE_APP_ROLE got no rights: it does not exist, is the role that migrates, or is a superuser. Create it, or name another role, and run the command again.`,
          ]
        : []),
    ]);
    return 0;
  },
});
