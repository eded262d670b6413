import { parseArgs } from 'node:util';
import { openDatabase } from '../db/database.ts';
import { type FeedbackRecord, listFeedback } from '../feedback/list.ts';
import { printable, printableJson } from './printable.ts';
import { commandSettings, databaseUrlOf } from './settings.ts';

/** `npm run feedback` prints a line for each piece of feedback; with `--json` all of every record, as one JSON array. */
const { values } = parseArgs({ options: { json: { type: 'boolean', default: false } } });

const MESSAGE_WIDTH = 60;
const COLUMNS = [24, 36, 19, 42, 24];

const mail = ({ notification, mailedAt }: FeedbackRecord): string =>
  mailedAt?.toISOString() ?? (notification === 'queued' ? 'waiting' : 'not configured');

function excerpt(message: string): string {
  const text = printable(message);
  return text.length > MESSAGE_WIDTH ? `${text.slice(0, MESSAGE_WIDTH - 1).replace(/[\ud800-\udbff]$/, '')}…` : text;
}

const line = (cells: string[]): string => cells.map((cell, index) => cell.padEnd(COLUMNS[index] ?? 0)).join('  ');

// Whoever reads may stop reading, as head does.
process.stdout.on('error', () => process.exit());

const db = openDatabase(databaseUrlOf(await commandSettings()), { maxConnections: 1, statementTimeoutMs: 0 });
try {
  let count = 0;
  if (!values.json) console.log(line(['received', 'id', 'category', 'wallet', 'mailed', 'message']));
  for await (const record of listFeedback(db)) {
    const { receivedAt, feedbackId, category, wallet, message } = record;
    if (values.json) console.log(`${count === 0 ? '[' : ','}${printableJson(record)}`);
    else console.log(line([receivedAt.toISOString(), feedbackId, category, wallet, mail(record), excerpt(message)]));
    count += 1;
  }
  if (values.json) console.log(count === 0 ? '[]' : ']');
} catch (error) {
  const { message, code } = error as { message?: string; code?: string };
  console.error(`The feedback can't be read: ${message || code}. Is DATABASE_URL right, and npm run migrate done?`);
  process.exitCode = 1;
} finally {
  await db.destroy();
}
