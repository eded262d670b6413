import { findTrace, type TraceEntry } from '../audit/trace.ts';
import { isUuid } from '../lib/uuid.ts';
import { endWith, readArguments } from './arguments.ts';
import { commandSettings } from './command-settings.ts';
import { look } from './look.ts';
import { printableJson } from './printable.ts';
import { printableLine } from './table-line.ts';

/**
 * `npm run trace -- ID` prints what the books know of the request with this x-trace-id, a line for each entry; with
 * `--json` as one JSON array. Exits with 1 when they know nothing.
 */
const USAGE = `speechgate trace ID
What the books know of the request with this x-trace-id, a line for each entry.
  --json           as one JSON array`;

const { values, positionals } = readArguments(
  { allowPositionals: true, options: { json: { type: 'boolean', default: false } } },
  USAGE,
);

const COLUMNS = [24, 10, 36, 9, 12, 42];

const line = (cells: readonly string[]): string => printableLine(COLUMNS, cells);

const lineOf = ({ at, what, id, state, amountMicroUsd, payer, detail }: TraceEntry): string =>
  line([at.toISOString(), what, id, state, String(amountMicroUsd ?? ''), payer ?? '', detail]);

const [traceId, ...more] = positionals;
if (traceId === undefined || more.length > 0 || !isUuid(traceId)) {
  endWith('npm run trace takes one trace id, which is the UUID in the x-trace-id header of an answer.');
}

await look({ settings: await commandSettings(), subject: 'The books' }, async (db) => {
  const entries = await findTrace(db, traceId);
  if (entries.length === 0) {
    console.error(
      'No charge, job or payment has this trace id: the request was not paid, or never came to that, or it repeated ' +
        'an earlier one. Then its lines in the log name that one: first.',
    );
    process.exitCode = 1;
  } else if (values.json) {
    console.log(printableJson(entries.map((entry) => ({ ...entry, amountMicroUsd: amountOf(entry) }))));
  } else {
    console.log(line(['at', 'what', 'id', 'state', 'micro-USD', 'payer', 'detail']));
    for (const entry of entries) console.log(lineOf(entry));
  }
});

function amountOf({ amountMicroUsd }: TraceEntry): number | null {
  return amountMicroUsd === null ? null : Number(amountMicroUsd);
}
