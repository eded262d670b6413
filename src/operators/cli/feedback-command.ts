import { type FeedbackRecord, listFeedback } from '../../feedback/list.ts';
import { JSON_OPTION } from '../../lib/arguments.ts';
import { printable, printableJson, tableLine } from '../../lib/printable.ts';
import { defineCommand, withDatabase } from './command.ts';

const USAGE = `speechgate admin feedback
Prints the stored feedback, a line for each. Callers send feedback with speechgate feedback send.
  --json           prints whole records as one JSON array`;

const MESSAGE_WIDTH = 60;
const COLUMNS = [24, 36, 19, 42, 24];

const mail = ({ notification, mailedAt }: FeedbackRecord): string =>
  mailedAt?.toISOString() ?? (notification === 'queued' ? 'waiting' : 'not configured');

function excerpt(message: string): string {
  const text = printable(message);
  return text.length > MESSAGE_WIDTH ? `${text.slice(0, MESSAGE_WIDTH - 1).replace(/[\ud800-\udbff]$/, '')}…` : text;
}

export const feedbackCommand = defineCommand({
  usage: USAGE,
  options: JSON_OPTION,
  run: ({ json }, _words, context) =>
    withDatabase(context, { subject: 'The feedback' }, async (db) => {
      const { console } = context;
      let count = 0;
      const head = tableLine(COLUMNS, ['received', 'id', 'category', 'wallet', 'mailed', 'message']);
      for await (const record of listFeedback(db)) {
        if (!json && count === 0) console.log(head);
        console.log(json ? `${count === 0 ? '[' : ','}${printableJson(record)}` : lineOf(record));
        count += 1;
      }
      if (json) console.log(count === 0 ? '[]' : ']');
      else if (count === 0) console.log(head);
      return 0;
    }),
});

function lineOf(record: FeedbackRecord): string {
  const { receivedAt, feedbackId, category, wallet, message } = record;
  return tableLine(COLUMNS, [receivedAt.toISOString(), feedbackId, category, wallet, mail(record), excerpt(message)]);
}
