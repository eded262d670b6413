import assert from 'node:assert/strict';
import { test } from 'tap';
import { describeFaults, readConfig } from '../../src/settings/config.ts';
import type { SettingFault } from '../../src/settings/settings-reader.ts';
import { configOf, DATABASE_URL, faultsOf, SECRET, testSettings } from '../support/setting.ts';
import { SETTINGS } from '../support/settings.ts';
import { PROCESS_SETTINGS } from '../support/settings-of-process.ts';

const USDC = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
const FACILITATOR = { X402_FACILITATOR_URL: 'https://facilitator.example' };
const FEEDBACK = {
  SMTP_URL: 'smtp://127.0.0.1',
  FEEDBACK_FROM: 'from@a.example',
  FEEDBACK_TO: 'to@a.example',
  FEEDBACK_SECRET: SECRET,
};

const namesOf = (faults: readonly SettingFault[]) => faults.map((fault) => fault.name);

test('these tests know every variable that is read', async () => {
  const asked = new Set<string>();
  readConfig(new Proxy<NodeJS.ProcessEnv>({}, { get: (_env, name) => void asked.add(String(name)) }));
  assert.deepEqual([...asked].sort(), Object.keys(SETTINGS).sort());
});

testSettings(PROCESS_SETTINGS);

test('BASE_URL is by default where the gateway listens', async () => {
  assert.equal(configOf({ DATABASE_URL, HOST: '192.0.2.7', PORT: '81' }).baseUrl, 'http://192.0.2.7:81');
  assert.equal(configOf({ DATABASE_URL, HOST: '::1' }).baseUrl, 'http://[::1]:8080');
});

test('R47: a missing DATABASE_URL is a fault, also when blank', async () => {
  for (const env of [{}, { DATABASE_URL: ' ' }]) assert.deepEqual(namesOf(faultsOf(env)), ['DATABASE_URL']);
});

test('R47: a flow whose settings are all absent is off', async () => {
  const { speech, card, x402, feedback, adminPort } = configOf({ DATABASE_URL });
  assert.deepEqual([speech, card, x402, feedback, adminPort], Array(5).fill(undefined));
});

for (const { env, missing } of [
  { env: { SPEECH_API_KEY: 'key' }, missing: 'SPEECH_BASE_URL' },
  { env: { STRIPE_API_BASE: 'http://127.0.0.1:12111' }, missing: 'STRIPE_SECRET_KEY' },
  { env: { X402_PAY_TO: USDC }, missing: 'X402_FACILITATOR_URL' },
  { env: FACILITATOR, missing: 'X402_PAY_TO' },
  ...['SMTP_URL', 'FEEDBACK_FROM', 'FEEDBACK_TO', 'FEEDBACK_SECRET'].map((missing) => ({
    env: Object.fromEntries(Object.entries(FEEDBACK).filter(([name]) => name !== missing)),
    missing,
  })),
  { env: { X402_FACILITATOR_AUTH: 'token' }, missing: 'X402_FACILITATOR_URL' },
]) {
  test(`R47: ${Object.keys(env)} without ${missing} is half a flow`, async () => {
    const [fault, ...more] = faultsOf({ DATABASE_URL, ...env });
    assert.equal(fault?.name, missing);
    assert.ok(fault.problem.includes(Object.keys(env)[0] as string));
    assert.deepEqual(more, []);
  });
}

test('R47: all faults are named at once', async () => {
  const env = Object.fromEntries(
    Object.entries(SETTINGS).flatMap(
      ([
        name,
        {
          refused: [value],
        },
      ]) => (value === undefined ? [] : [[name, value]]),
    ),
  );
  assert.deepEqual(namesOf(faultsOf(env)).sort(), Object.keys(env).sort());
});

test('R47: the faults are printed one a line: name, problem, fix', async () => {
  const faults = [
    { name: 'PORT', problem: 'is wrong', fix: 'Correct it.' },
    { name: 'HOST', problem: 'is missing', fix: 'Set it.' },
  ];
  assert.equal(describeFaults(faults), 'PORT is wrong. Correct it.\nHOST is missing. Set it.');
});

test('no fault repeats a secret', async () => {
  const secrets = {
    DATABASE_URL: 'mysql://user:hidden-1@127.0.0.1/speech',
    STRIPE_SECRET_KEY: 'hidden-2',
    JOB_SIGNING_SECRET: 'hidden-3',
    QUOTE_SECRET: 'hidden-6',
    X402_FACILITATOR_AUTH: 'hidden-7',
    X402_RPC_URL: 'ipc:hidden-8',
    SPEECH_API_KEY: 'hidden-4',
    AUDIO_STORE: 's3://key:hidden-5@voices',
    FEEDBACK_SECRET: 'hidden-9',
    SMTP_URL: 'http://user:hidden-10@mail.example',
    FEEDBACK_FROM: 'hidden-11',
    FEEDBACK_TO: 'hidden-12',
  };
  const faults = faultsOf(secrets);
  assert.equal(faults.length, 12);
  assert.ok(!describeFaults(faults).includes('hidden'));
});
