import { type FeedbackRecord, listFeedback } from '../feedback/list.ts';
import { readArguments } from './arguments.ts';
import { commandSettings } from './command-settings.ts';
import { look } from './look.ts';
import { printable, printableJson } from './printable.ts';
import { tableLine } from './table-line.ts';

const USAGE = `speechgate feedback
The feedback that was stored, a line for each. Callers send some by speechgate feedback send.
  --json           all of every record, as one JSON array`;

/** `npm run feedback` prints a line for each piece of feedback; with `--json` all of every record, as one JSON array. */
const { values } = readArguments({ options: { json: { type: 'boolean', default: false } } }, USAGE);

const MESSAGE_WIDTH = 60;
const COLUMNS = [24, 36, 19, 42, 24];

const mail = ({ notification, mailedAt }: FeedbackRecord): string =>
  mailedAt?.toISOString() ?? (notification === 'queued' ? 'waiting' : 'not configured');

function excerpt(message: string): string {
  const text = printable(message);
  return text.length > MESSAGE_WIDTH ? `${text.slice(0, MESSAGE_WIDTH - 1).replace(/[\ud800-\udbff]$/, '')}…` : text;
}

// Whoever reads may stop reading, as head does.
process.stdout.on('error', () => process.exit());

await look({ settings: await commandSettings(), subject: 'The feedback' }, async (db) => {
  let count = 0;
  if (!values.json) console.log(tableLine(COLUMNS, ['received', 'id', 'category', 'wallet', 'mailed', 'message']));
  for await (const record of listFeedback(db)) {
    const { receivedAt, feedbackId, category, wallet, message } = record;
    if (values.json) console.log(`${count === 0 ? '[' : ','}${printableJson(record)}`);
    else
      console.log(
        tableLine(COLUMNS, [receivedAt.toISOString(), feedbackId, category, wallet, mail(record), excerpt(message)]),
      );
    count += 1;
  }
  if (values.json) console.log(count === 0 ? '[]' : ']');
});
