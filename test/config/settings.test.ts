import assert from 'node:assert/strict';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'tap';
import { describeFaults, readConfig } from '../../src/config/config.ts';
import { SECRETS, type SettingFault } from '../../src/config/settings-reader.ts';
import { findMisspelt, nearest } from '../../src/lib/misspelt.ts';
import { catalogFile } from '../support/catalog-file.ts';
import { configOf, DATABASE_URL, faultsOf, SECRET, type Setting, testSettings } from '../support/setting.ts';
import { SETTINGS } from '../support/settings.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const USDC = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
const FACILITATOR = { X402_FACILITATOR_URL: 'https://facilitator.example' };
const FEEDBACK = {
  SMTP_URL: 'smtp://127.0.0.1',
  FEEDBACK_FROM: 'from@a.example',
  FEEDBACK_TO: 'to@a.example',
  FEEDBACK_SECRET: SECRET,
};

const namesOf = (faults: readonly SettingFault[]) => faults.map((fault) => fault.name);

test('these tests cover every variable that the service reads', async (t) => {
  const asked = new Set<string>();
  readConfig(new Proxy<NodeJS.ProcessEnv>({}, { get: (_env, name) => void asked.add(String(name)) }));
  const files = SECRETS.map((name) => `${name}_FILE`);
  t.strictSame([...asked].sort(), [...Object.keys(SETTINGS), ...files].sort());
});

testSettings(SETTINGS);

test('BASE_URL defaults to the listening address', async (t) => {
  t.equal(configOf({ DATABASE_URL, HOST: '192.0.2.7', PORT: '81' }).baseUrl, 'http://192.0.2.7:81');
  t.equal(configOf({ DATABASE_URL, HOST: '::1' }).baseUrl, 'http://[::1]:8080');
});

test('R47: HOST that is too long for a socket is a fault', async (t) => {
  const hostOf = (bytes: number) => ({
    DATABASE_URL,
    BASE_URL: 'https://speech.example',
    HOST: `/${'s'.repeat(bytes - 1)}`,
  });
  t.equal(configOf(hostOf(103)).host.length, 103);
  t.strictSame(namesOf(faultsOf(hostOf(104))), ['HOST']);
});

test('R47: a missing or blank DATABASE_URL is a fault', async (t) => {
  for (const env of [{}, { DATABASE_URL: ' ' }]) t.strictSame(namesOf(faultsOf(env)), ['DATABASE_URL']);
});

test('R47: a flow without settings is off', async (t) => {
  const { speech, card, x402, feedback, adminPort } = configOf({ DATABASE_URL });
  t.strictSame([speech, card, x402, feedback, adminPort], Array(5).fill(undefined));
});

for (const { env, missing } of [
  { env: { SPEECH_API_KEY: 'key' }, missing: 'SPEECH_BASE_URL' },
  { env: { STRIPE_API_BASE: 'http://127.0.0.1:12111' }, missing: 'STRIPE_SECRET_KEY' },
  { env: { HOST: '/run/speechgate.sock' }, missing: 'BASE_URL' },
  { env: { X402_PAY_TO: USDC }, missing: 'X402_FACILITATOR_URL' },
  { env: FACILITATOR, missing: 'X402_PAY_TO' },
  ...['SMTP_URL', 'FEEDBACK_FROM', 'FEEDBACK_TO', 'FEEDBACK_SECRET'].map((missing) => ({
    env: Object.fromEntries(Object.entries(FEEDBACK).filter(([name]) => name !== missing)),
    missing,
  })),
  { env: { X402_FACILITATOR_AUTH: 'token' }, missing: 'X402_FACILITATOR_URL' },
]) {
  test(`R47: ${Object.keys(env)} without ${missing} is half a flow`, async (t) => {
    const [fault, ...more] = faultsOf({ DATABASE_URL, ...env });
    assert.equal(fault?.name, missing);
    t.ok(fault.problem.includes(Object.keys(env)[0] as string));
    t.strictSame(more, []);
  });
}

test('R47: all faults are reported at once', async (t) => {
  const wrong = Object.entries(SETTINGS).map(([name, { refused }]) => [name, refused[0]]);
  const env = Object.fromEntries(wrong.filter(([, value]) => value !== undefined));
  t.strictSame(namesOf(faultsOf(env)).sort(), Object.keys(env).sort());
});

test('R47: one secret in two settings is a fault, and a list of secrets is not', async (t) => {
  const [shared, other] = [SECRET, 't'.repeat(32)];
  t.equal(configOf({ DATABASE_URL, QUOTE_SECRET: `${shared},${other}` }).quotes?.secrets.length, 2);
  const faults = faultsOf({ DATABASE_URL, QUOTE_SECRET: `${other},${shared}`, FEEDBACK_SECRET: shared });
  t.strictSame(namesOf(faults), ['FEEDBACK_SECRET']);
  t.match(faults[0]?.problem ?? '', /QUOTE_SECRET/);
  t.notMatch(describeFaults(faults), new RegExp(shared));
});

test('R47: PORT and ADMIN_PORT on one address are a fault', async (t) => {
  const port = { DATABASE_URL, PORT: '8080', ADMIN_PORT: '8080' };
  for (const hosts of [{}, { HOST: '0.0.0.0' }, { HOST: '10.0.0.1', ADMIN_HOST: '::' }]) {
    t.strictSame(namesOf(faultsOf({ ...port, ...hosts })), ['ADMIN_PORT']);
  }
  t.equal(configOf({ ...port, HOST: '10.0.0.1' }).adminPort, 8080, 'two addresses have two ports');
});

test('R47: a faulty keys file is told with a way out that works', async (t) => {
  const folder = await temporaryFolder(t);
  const SIGNING_KEYS_FILE = join(folder, 'keys.json');
  const fault = () => describeFaults(faultsOf({ DATABASE_URL, SIGNING_KEYS_FILE }));
  t.match(fault(), /^SIGNING_KEYS_FILE names a file that does not exist\. Create it with: speechgate keys\.$/);
  for (const text of ['no JSON', '{}', '{"keys":[{}]}']) {
    await writeFile(SIGNING_KEYS_FILE, text);
    t.match(fault(), /^SIGNING_KEYS_FILE names a file that .+\. Restore the file from a backup, or move it away and /);
  }
});

test('a secret is read from the file that NAME_FILE names', async (t) => {
  const folder = await temporaryFolder(t);
  const file = join(folder, 'secret');
  for (const name of SECRETS) {
    const { accepted, read, beside } = SETTINGS[name] as Setting;
    const [value = '', expected] = Object.entries(accepted)[0] ?? [];
    await writeFile(file, `${value}\n`);
    const others = name === 'DATABASE_URL' ? {} : { DATABASE_URL };
    t.strictSame(read(configOf({ ...others, ...beside, [`${name}_FILE`]: file })), expected, name);
  }
});

test('R47: a certificate of DATABASE_URL that does not exist is a fault', async () => {
  const faultOf = (query: string) => describeFaults(faultsOf({ DATABASE_URL: `${DATABASE_URL}?${query}` }));
  for (const name of ['sslrootcert', 'sslcert', 'sslkey'])
    assert.equal(
      faultOf(`sslmode=verify-full&${name}=/nowhere/ca.pem`),
      `DATABASE_URL names a file that does not exist. Correct ${name} in it.`,
    );
});

test('R47: a secret file that can not be used is a fault that says why', async (t) => {
  const folder = await temporaryFolder(t);
  const file = join(folder, 'secret');
  await writeFile(file, SECRET, { mode: 0o600 });
  const faultOf = (env: NodeJS.ProcessEnv) => describeFaults(faultsOf({ DATABASE_URL, ...env }));
  t.match(faultOf({ QUOTE_SECRET: SECRET, QUOTE_SECRET_FILE: file }), /^QUOTE_SECRET_FILE is set, and QUOTE_SECRET is/);
  t.match(faultOf({ QUOTE_SECRET_FILE: `${file}s` }), /^QUOTE_SECRET_FILE names a file that does not exist\./);
  t.match(faultOf({ QUOTE_SECRET_FILE: folder }), /^QUOTE_SECRET_FILE names a file that can't be read \(EISDIR\)\./);
  const { seteuid } = process;
  if (process.geteuid?.() !== 0 || !seteuid) return;
  await chmod(folder, 0o755);
  seteuid(65_534);
  try {
    t.match(
      faultOf({ QUOTE_SECRET_FILE: file }),
      /^QUOTE_SECRET_FILE names a file that the service's user may not read\..*0640/,
    );
  } finally {
    seteuid(0);
  }
});

test('no fault message repeats a secret', async (t) => {
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
  t.equal(faults.length, 12);
  t.ok(!describeFaults(faults).includes('hidden'));
});

const NAMES = new Set(['HOST', 'RATE_LIMIT_MAX', 'X402_PAY_TO', 'DATABASE_URL', 'SANDBOX_DATABASE_URL']);

test('a misspelt setting is reported with the one that is meant', async (t) => {
  for (const [name, meant] of [
    ['RATE_LIMT_MAX', 'RATE_LIMIT_MAX'],
    ['RATE_LIMITS_MAX', 'RATE_LIMIT_MAX'],
    ['DATABSE_URL', 'DATABASE_URL'],
    ['X402_PAYTO', 'X402_PAY_TO'],
  ] as const) {
    t.strictSame(findMisspelt([name], NAMES), [{ name, meant }]);
  }
  const commands = ['say', 'models', 'voice', 'voices', 'top-up'];
  const found = ['sya', 'Say', 'voises', 'modles', 'top_up', 'play', 's'].map((name) => nearest(name, commands));
  t.strictSame(found, ['say', 'say', 'voices', 'models', 'top-up', undefined, undefined]);
});

test('known settings and unrelated names are not reported as misspelt', async (t) => {
  t.strictSame(findMisspelt([...NAMES, 'HOME', 'PATH', 'RATE', 'TEST_DATABASE_URL', 'PWD'], NAMES), []);
});

test('SPEECH_BASE_URL=embedded: is a fault that names the voice command', async (t) => {
  const faults = faultsOf({ DATABASE_URL, SPEECH_BASE_URL: 'embedded:', PORT: 'x' });
  t.strictSame(
    faults.map(({ name }) => name),
    ['PORT', 'SPEECH_BASE_URL'],
  );
  t.match(faults[1]?.fix ?? '', /npx --no -- speechgate voice --port 8090/);
});

const MODEL = {
  ...{ id: 'acme/one', provider: 'acme', name: 'One', description: 'One.', upstreamModel: 'one' },
  ...{ baseRatePicoUsdPerCharacter: 100, maxInputCharacters: 10, defaultVoice: 'bella', available: true },
  voices: [{ voice: 'bella', name: 'Bella', upstreamVoice: 'bella' }],
};
const CATALOG = {
  ...{ markupPercent: 100, defaultModel: 'acme/one' },
  upstreams: [
    { name: 'cloud', baseUrl: 'https://cloud.example/v1', keyVariable: 'CLOUD_SPEECH_KEY' },
    { name: 'local', baseUrl: 'http://127.0.0.1:8880/v1' },
  ],
  models: [{ ...MODEL, upstreams: [{ name: 'cloud' }, { name: 'local' }] }],
};

test('catalog upstreams read their keys from the variables that it names', async (t) => {
  const CATALOG_FILE = await catalogFile(t, CATALOG);
  const { speech } = configOf({ DATABASE_URL, CATALOG_FILE, CLOUD_SPEECH_KEY: 'key of the cloud' });
  t.equal(speech?.baseUrl, undefined);
  t.strictSame(speech?.servers, [
    { name: 'cloud', baseUrl: 'https://cloud.example/v1', apiKey: 'key of the cloud', keyVariable: 'CLOUD_SPEECH_KEY' },
    { name: 'local', baseUrl: 'http://127.0.0.1:8880/v1', apiKey: undefined, keyVariable: undefined },
  ]);
});

test('the key of a catalog upstream may be in a file', async (t) => {
  const CATALOG_FILE = await catalogFile(t, CATALOG);
  const CLOUD_SPEECH_KEY_FILE = join(await temporaryFolder(t), 'key');
  await writeFile(CLOUD_SPEECH_KEY_FILE, 'key of the cloud\n');
  const { speech } = configOf({ DATABASE_URL, CATALOG_FILE, CLOUD_SPEECH_KEY_FILE });
  t.equal(speech?.servers[0]?.apiKey, 'key of the cloud');
});

test('R47: a missing key variable is reported with all other faults', async (t) => {
  const both = [MODEL, { ...MODEL, id: 'acme/two' }].map((model) => ({ ...model, upstreams: [{ name: 'default' }] }));
  const CATALOG_FILE = await catalogFile(t, { ...CATALOG, models: [CATALOG.models[0], both[1]] });
  const faults = faultsOf({ DATABASE_URL, CATALOG_FILE, PORT: 'x' });
  t.strictSame(
    faults.map(({ name }) => name),
    ['PORT', 'CLOUD_SPEECH_KEY', 'SPEECH_BASE_URL'],
  );
  t.match(faults[1]?.problem ?? '', /^is not set, but CATALOG_FILE names it as the key of upstream cloud$/);
  t.match(faults[2]?.problem ?? '', /acme\/two$/);
});
