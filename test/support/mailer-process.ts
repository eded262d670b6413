/** The mail worker of DATABASE_URL in a process of its own. */
import { pino } from 'pino';
import { openDatabase } from '../../src/db/database.ts';
import { mailWorker } from '../../src/feedback/deliver.ts';
import { UNMEASURED } from '../../src/observability/outside.ts';

const { DATABASE_URL = '', SMTP_URL = '' } = process.env;
const from = { name: 'Speechgate', address: 'from@speech.example' };
const mail = { smtpUrl: SMTP_URL, serviceName: 'speechgate', from, to: [from] };
const log = pino({ level: 'warn' });
const db = openDatabase(DATABASE_URL, { maxConnections: 2 });
mailWorker(db, mail, { databaseUrl: DATABASE_URL, namedStatements: true, log }, UNMEASURED).start();
