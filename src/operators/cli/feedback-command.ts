import { type FeedbackRecord, listFeedback } from '../../feedback/list.ts';
import { JSON_OPTION, readArguments } from '../../lib/arguments.ts';
import { printable, printableJson, tableLine } from '../../lib/printable.ts';
import { withDatabase } from './command-settings.ts';

const USAGE = `speechgate feedback
Prints the stored feedback, a line for each. Callers send feedback with speechgate feedback send.
  --json           prints whole records as one JSON array`;

const { values } = readArguments({ usage: USAGE, options: { ...JSON_OPTION } });

const MESSAGE_WIDTH = 60;
const COLUMNS = [24, 36, 19, 42, 24];

const mail = ({ notification, mailedAt }: FeedbackRecord): string =>
  mailedAt?.toISOString() ?? (notification === 'queued' ? 'waiting' : 'not configured');

function excerpt(message: string): string {
  const text = printable(message);
  return text.length > MESSAGE_WIDTH ? `${text.slice(0, MESSAGE_WIDTH - 1).replace(/[\ud800-\udbff]$/, '')}…` : text;
}

// The reader of the output may exit early, as `head` does.
process.stdout.on('error', () => process.exit());

await withDatabase({ subject: 'The feedback' }, async (db) => {
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
