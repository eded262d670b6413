import { migrate } from '../db/migrate.ts';
import { databaseUrl } from './database-url.ts';

const applied = await migrate(databaseUrl());
console.log(applied.length > 0 ? `Applied ${applied.join(', ')}.` : 'The schema is current.');
