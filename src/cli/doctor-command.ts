/**
 * `npm run doctor` examines the whole configuration against its live parts, a line for each check; with `--json` as one
 * JSON array. It changes nothing but an object of the audio store, which it deletes again, and has each model speak a
 * word. Exits with 0 when there is no fault, 1 when there is one, 78 when the settings can't be read.
 */
import { allChecks } from '../doctor/all-checks.ts';
import { type Checked, runChecks } from '../doctor/run-checks.ts';
import { within } from '../lib/within.ts';
import { readConfig } from '../settings/config.ts';
import { EXIT_USAGE, readArguments } from './arguments.ts';
import { commandSettings } from './command-settings.ts';
import { printableJson } from './printable.ts';
import { printableLine } from './table-line.ts';

const EXIT_FAULT = 1;
const CLOSE_MS = 3_000;
const COLUMNS = [7, 34];
const WORDS = { ok: 'ok', warning: 'warning', fault: 'FAULT', skipped: 'skipped' } as const;
const USAGE = `speechgate doctor
Holds the whole configuration against its live parts, a line for each check. Ends with 1 when there is a fault.
  --json           as one JSON array
  --no-speak       has no model speak a word
  --mail           sends a mail
  --skip CHECK     leaves a check out; may be repeated`;

const { values } = readArguments(
  {
    options: {
      json: { type: 'boolean', default: false },
      'no-speak': { type: 'boolean', default: false },
      mail: { type: 'boolean', default: false },
      skip: { type: 'string', multiple: true, default: [] },
    },
  },
  USAGE,
);
const settings = await commandSettings();
const read = readConfig(settings);
if (read.outcome === 'faulty') {
  tell(read.faults.map(({ name, problem, fix }) => ({ name, state: 'fault', message: `It ${problem}.`, fix })));
  process.exit(EXIT_USAGE);
}
const { config, misspelt } = read;
const { checks, close } = await allChecks({
  ...{ config, misspelt, now: Date.now },
  keysFile: settings.SIGNING_KEYS_FILE?.trim(),
  isSandbox: settings !== process.env,
  speaks: !values['no-speak'],
  mails: values.mail,
});
const unknown = values.skip.find((name) => !checks.some((check) => check.name === name));
if (unknown !== undefined) {
  console.error(`There is no check ${unknown}. There are: ${[...new Set(checks.map(({ name }) => name))].join(', ')}.`);
  process.exit(EXIT_USAGE);
}
const told: Checked[] = [];
for await (const checked of runChecks(checks, new Set(values.skip))) {
  told.push(checked);
  if (!values.json) console.log(lineOf(checked));
}
if (values.json) console.log(printableJson(told));
await within(CLOSE_MS, close());
// A part that hangs has its connection still.
process.exit(told.some(({ state }) => state === 'fault') ? EXIT_FAULT : 0);

function tell(all: readonly Checked[]): void {
  if (values.json) console.log(printableJson(all));
  else for (const checked of all) console.log(lineOf(checked));
}

function lineOf({ name, about, state, message, fix }: Checked): string {
  const what = about === undefined ? name : `${name} (${about})`;
  return printableLine(COLUMNS, [WORDS[state], what, fix === undefined ? message : `${message} Fix: ${fix}`]);
}
