import { APPLICATION_ROLE, migrate } from '../db/migrate.ts';
import { databaseUrl } from './database-url.ts';

const role = process.env.DATABASE_APP_ROLE?.trim() || APPLICATION_ROLE;
const { applied, notValid, hasGranted } = await migrate(databaseUrl(), role);
console.log(applied.length > 0 ? `Applied ${applied.join(', ')}.` : 'The schema is current.');
for (const name of notValid) {
  console.log(`Rows of an earlier release break ${name}, which new rows keep. npm run audit shows them.`);
}
if (hasGranted) console.log(`The role ${role} has the rights of the application.`);
