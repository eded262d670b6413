import { readConfig } from '../../config/config.ts';
import { EXIT_USAGE, JSON_OPTION, readArguments } from '../../lib/arguments.ts';
import { printableJson, printableLine } from '../../lib/printable.ts';
import { within } from '../../lib/within.ts';
import { type DoctorOptions, openContext } from '../doctor/check.ts';
import { allChecks, type Checked, runChecks } from '../doctor/run-checks.ts';
import { commandSettings } from './command-settings.ts';

const EXIT_FAULT = 1;
const CLOSE_MS = 3_000;
const COLUMNS = [7, 34];
const WORDS = { ok: 'ok', warning: 'warning', fault: 'FAULT', skipped: 'skipped' } as const;
const USAGE = `speechgate doctor
Checks the configuration against its live parts and prints a line for each check. Exits with 1 if there is a fault.
  --json           prints one JSON array
  --no-speak       does not request speech from the models
  --mail           sends a mail
  --skip CHECK     skips a check; can be repeated`;

const { values } = readArguments({
  usage: USAGE,
  options: {
    ...JSON_OPTION,
    'no-speak': { type: 'boolean', default: false },
    mail: { type: 'boolean', default: false },
    skip: { type: 'string', multiple: true, default: [] },
  },
});
const settings = await commandSettings();
const read = readConfig(settings);
if (read.outcome === 'faulty') {
  tell(read.faults.map(({ name, problem, fix }) => ({ name, state: 'fault', message: `It ${problem}.`, fix })));
  process.exit(EXIT_USAGE);
}
const { config, misspelt } = read;
const options: DoctorOptions = {
  config,
  misspelt,
  now: Date.now,
  keysFile: settings.SIGNING_KEYS_FILE?.trim(),
  isSandbox: settings !== process.env,
  speaks: !values['no-speak'],
  mails: values.mail,
};
const checks = allChecks(options);
const unknown = values.skip.find((name) => !checks.some((check) => check.name === name));
if (unknown !== undefined) {
  console.error(`There is no check ${unknown}. There are: ${[...new Set(checks.map(({ name }) => name))].join(', ')}.`);
  process.exit(EXIT_USAGE);
}
const results: Checked[] = [];
const context = openContext(options);
for await (const checked of runChecks(checks, context, new Set(values.skip))) {
  results.push(checked);
  if (!values.json) console.log(lineOf(checked));
}
if (values.json) console.log(printableJson(results));
await within(CLOSE_MS, context.db.destroy());
// A check that hangs may keep a connection open.
process.exit(results.some(({ state }) => state === 'fault') ? EXIT_FAULT : 0);

function tell(all: readonly Checked[]): void {
  if (values.json) console.log(printableJson(all));
  else for (const checked of all) console.log(lineOf(checked));
}

function lineOf({ name, about, state, message, fix }: Checked): string {
  const what = about === undefined ? name : `${name} (${about})`;
  return printableLine(COLUMNS, [WORDS[state], what, fix === undefined ? message : `${message} Fix: ${fix}`]);
}
