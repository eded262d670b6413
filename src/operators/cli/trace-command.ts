import { endWith, JSON_OPTION, readArguments } from '../../lib/arguments.ts';
import { printableJson, printTable } from '../../lib/printable.ts';
import { isUuid } from '../../lib/uuid.ts';
import { findTrace } from '../audit/trace.ts';
import { withDatabase } from './command-settings.ts';

const USAGE = `speechgate trace ID
Prints what the books have about the request with this x-trace-id, a line for each entry.
  --json           prints one JSON array`;

const { values, words } = readArguments({ usage: USAGE, options: { ...JSON_OPTION }, words: ['ID'] });

const [traceId = ''] = words;
if (!isUuid(traceId)) {
  endWith('speechgate trace takes one trace id: the UUID in the x-trace-id header of a response.');
}

await withDatabase({ subject: 'The books' }, async (db) => {
  const entries = await findTrace(db, traceId);
  if (entries.length === 0) {
    console.error(
      'No charge, job or payment has this trace id: the request was not paid, or it repeated an earlier one. ' +
        'In the second case its log line names the earlier trace id as first.',
    );
    process.exitCode = 1;
  } else if (values.json) {
    console.log(printableJson(entries));
  } else {
    printTable(entries);
  }
});
