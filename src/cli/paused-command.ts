import { listPauses } from '../operators/pauses.ts';
import { readArguments } from './arguments.ts';
import { commandSettings } from './command-settings.ts';
import { look } from './look.ts';
import { printableJson } from './printable.ts';
import { printableLine } from './table-line.ts';

const USAGE = `speechgate paused
  --json           print it as a JSON array`;
const COLUMNS = [8, 24, 16];

/** `speechgate paused` prints what is paused, since when, by whom and why. */
const { values } = readArguments({ options: { json: { type: 'boolean', default: false } } }, USAGE);

await look({ settings: await commandSettings(), subject: 'What is paused' }, async (db) => {
  const pauses = await listPauses(db);
  if (values.json) return console.log(printableJson(pauses));
  if (pauses.length === 0) return console.log('Nothing is paused.');
  console.log(printableLine(COLUMNS, ['flow', 'since', 'operator', 'reason']));
  for (const { flow, since, operator, reason } of pauses)
    console.log(printableLine(COLUMNS, [flow, since.toISOString(), operator, reason]));
});
