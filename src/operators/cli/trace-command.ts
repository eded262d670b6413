import { JSON_OPTION, UsageError } from '../../lib/arguments.ts';
import { printableJson, tableLines } from '../../lib/printable.ts';
import { isUuid } from '../../lib/uuid.ts';
import { findTrace } from '../audit/trace.ts';
import { defineCommand, ExitError, printLines, withDatabase } from './command.ts';

const USAGE = `speechgate admin trace ID
Prints the ledger entries of the request with this x-trace-id, a line for each.
  --json           prints one JSON array`;

export const traceCommand = defineCommand({
  usage: USAGE,
  options: JSON_OPTION,
  words: ['ID'],
  run: async ({ json }, [traceId = ''], context) => {
    if (!isUuid(traceId)) {
      throw new UsageError('ID is not a trace id. Give the UUID in the x-trace-id header of a response.');
    }
    return withDatabase(context, { subject: 'The ledger' }, async (db) => {
      const entries = await findTrace(db, traceId);
      if (entries.length === 0) {
        throw new ExitError(
          'No charge, job or payment has this trace id: the request was not charged, or it repeated an earlier request. ' +
            'For a repeated request, the earlier trace id is in the member "first" of its log line.',
        );
      }
      printLines(context, json ? [printableJson(entries)] : tableLines(entries));
      return 0;
    });
  },
});
