import { readConfig } from '../../config/config.ts';
import type { SettingFault } from '../../config/settings-reader.ts';
import { EXIT_CONFIG, JSON_OPTION, UsageError } from '../../lib/arguments.ts';
import { printableJson, printableLine } from '../../lib/printable.ts';
import { within } from '../../lib/within.ts';
import { type DoctorOptions, openContext } from '../doctor/check.ts';
import { allChecks, type Checked, runChecks } from '../doctor/run-checks.ts';
import { commandSettings, defineCommand, EXIT_FAILED, printLines } from './command.ts';

const CLOSE_MS = 3_000;
const COLUMNS = [7, 34];
const WORDS = { ok: 'ok', warning: 'warning', fault: 'FAULT', skipped: 'skipped' } as const;
const USAGE = `speechgate admin doctor
Checks the settings and the services that they name, and prints a line for each check. Exits with 1 if there is a fault.
  --json           prints one JSON array
  --no-speak       requests no speech from your speech servers, which may charge for it
  --skip CHECK     skips the check of this name in the second column; can be repeated`;

export const doctorCommand = defineCommand({
  usage: USAGE,
  options: {
    ...JSON_OPTION,
    'no-speak': { type: 'boolean', default: false },
    skip: { type: 'string', multiple: true, default: [] },
  },
  run: async ({ json, 'no-speak': isSilent, skip }, _words, context) => {
    const settings = await commandSettings(context);
    const isSandbox = settings !== context.env;
    if (isSandbox)
      context.console.error(
        'This checks the sandbox, whose card processor, chain and mail server are local. Your production is not checked.',
      );
    const read = readConfig(settings);
    if (read.outcome === 'faulty') {
      const faults = read.faults.map(faultyCheck);
      printLines(context, json ? [printableJson(faults)] : faults.map(lineOf));
      return EXIT_CONFIG;
    }
    const { config, misspelt } = read;
    const options: DoctorOptions = {
      config,
      misspelt,
      now: Date.now,
      keysFile: settings.SIGNING_KEYS_FILE?.trim(),
      isSandbox,
      speaks: !isSilent,
    };
    const checks = allChecks(options);
    const unknown = skip.find((name) => !checks.some((check) => check.name === name));
    if (unknown !== undefined) {
      const names = new Set(checks.map(({ name }) => name));
      throw new UsageError(`--skip ${unknown} names no check. Use one of ${[...names].join(', ')}.`);
    }
    const results: Checked[] = [];
    const doctor = openContext(options);
    for await (const checked of runChecks(checks, doctor, new Set(skip))) {
      results.push(checked);
      if (!json) context.console.log(lineOf(checked));
    }
    if (json) context.console.log(printableJson(results));
    await within(CLOSE_MS, doctor.db.destroy());
    return results.some(({ state }) => state === 'fault') ? EXIT_FAILED : 0;
  },
});

const faultyCheck = ({ name, problem, fix }: SettingFault): Checked => ({
  name,
  state: 'fault',
  message: `${name} ${problem}.`,
  fix,
});

function lineOf({ name, about, state, message, fix }: Checked): string {
  const what = about === undefined ? name : `${name} (${about})`;
  return printableLine(COLUMNS, [WORDS[state], what, fix === undefined ? message : `${message} Fix: ${fix}`]);
}
