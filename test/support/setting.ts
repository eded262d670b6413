import assert from 'node:assert/strict';
import { test } from 'tap';
import { type Config, describeFaults, readConfig } from '../../src/config/config.ts';
import type { SettingFault } from '../../src/config/settings-reader.ts';

/** What is expected of one variable. */
export interface Setting {
  readonly read: (config: Config) => unknown;
  /** What it is when the variable is absent; not checked for a required one. */
  readonly absent?: unknown;
  readonly accepted: { readonly [value: string]: unknown };
  readonly refused: readonly string[];
  /** Variables without which this one is half a flow, or takes no part. */
  readonly beside?: NodeJS.ProcessEnv;
  /** Absent beside the others it is a fault. */
  readonly half?: true;
}

export interface Settings {
  readonly [name: string]: Setting;
}

export const DATABASE_URL = 'postgres://user:password@127.0.0.1:5432/speech';
export const SECRET = 's'.repeat(32);
export const NO_WHOLE_NUMBER = ['-1', '1.5', '1e3', '0x10', 'ten', '9'.repeat(16)];

/** A setting that is a whole number, with its bounds. */
export const wholeNumber = (
  read: Setting['read'],
  [least, most]: readonly [number, number],
  absent: number,
  beside?: NodeJS.ProcessEnv,
): Setting => ({
  read,
  absent,
  accepted: { [least]: least, [most]: most },
  refused: [...(least > 0 ? [String(least - 1)] : []), String(most + 1), ...NO_WHOLE_NUMBER],
  ...(beside && { beside }),
});

export const NO_ORIGIN = [
  'speech.example',
  'ftp://speech.example',
  'https://a.example/path',
  'https://a.example/?q',
  'https://u@a',
];

export function configOf(env: NodeJS.ProcessEnv): Config {
  const result = readConfig(env);
  return result.outcome === 'read' ? result.config : assert.fail(describeFaults(result.faults));
}

export function faultsOf(env: NodeJS.ProcessEnv): readonly SettingFault[] {
  const result = readConfig(env);
  return result.outcome === 'faulty' ? result.faults : assert.fail('no fault');
}

/** Declares the tests of each setting: its default, and what is accepted and refused. */
export function testSettings(settings: Settings): void {
  for (const [name, { read, absent, accepted, refused, beside, half }] of Object.entries(settings)) {
    const others = { DATABASE_URL, ...beside };

    if (name !== 'DATABASE_URL' && !half) {
      test(`${name} has its default when absent or blank`, async () => {
        assert.deepEqual(read(configOf(others)), absent);
        for (const blank of ['', '  ', '\t\n']) assert.deepEqual(read(configOf({ ...others, [name]: blank })), absent);
      });
    }

    for (const [value, expected] of Object.entries(accepted)) {
      test(`${name}=${shown(value)} is accepted, also with white space around it`, async () => {
        assert.deepEqual(read(configOf({ ...others, [name]: value })), expected);
        assert.deepEqual(read(configOf({ ...others, [name]: ` ${value}\n` })), expected);
      });
    }

    for (const value of refused) {
      test(`R47: ${name}=${shown(value)} is a fault of that name, with what is wrong and the fix`, async () => {
        const [fault, ...more] = faultsOf({ ...others, [name]: value });
        assert.equal(fault?.name, name);
        assert.deepEqual(more, []);
        assert.match(fault.problem, /^(is|does|can't|has|names) /);
        assert.match(fault.fix, /^[A-Z].*\.$/);
      });
    }
  }
}

const shown = (value: string) => JSON.stringify(value.length > 50 ? `${value.slice(0, 50)}…` : value);
