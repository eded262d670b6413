import assert from 'node:assert/strict';
import { resolve } from 'node:path';
import { test } from 'tap';
import { type Config, describeFaults, readConfig } from '../src/settings/config.ts';
import type { SettingFault } from '../src/settings/settings-reader.ts';

interface Setting {
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

const DATABASE_URL = 'postgres://user:password@127.0.0.1:5432/speech';
const SECRET = 's'.repeat(32);
const UPSTREAM = { SPEECH_BASE_URL: 'http://speech.internal/v1' };
const USDC = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
const FACILITATOR = { X402_FACILITATOR_URL: 'https://facilitator.example' };
const X402 = { X402_PAY_TO: USDC, ...FACILITATOR };
const FEEDBACK = {
  SMTP_URL: 'smtp://127.0.0.1',
  FEEDBACK_FROM: 'from@a.example',
  FEEDBACK_TO: 'to@a.example',
  FEEDBACK_SECRET: SECRET,
};
const PROCESSOR = { STRIPE_SECRET_KEY: 'sk_test_1' };
const NO_WHOLE_NUMBER = ['-1', '1.5', '1e3', '0x10', 'ten', '9'.repeat(16)];
const NO_ORIGIN = [
  'speech.example',
  'ftp://speech.example',
  'https://a.example/path',
  'https://a.example/?q',
  'https://u@a',
];

const settings: { readonly [name: string]: Setting } = {
  DATABASE_URL: {
    read: (config) => config.databaseUrl,
    accepted: { [DATABASE_URL]: DATABASE_URL, 'postgresql:///speech': 'postgresql:///speech' },
    refused: ['', '127.0.0.1:5432', 'mysql://127.0.0.1/speech'],
  },
  HOST: { read: (config) => config.host, absent: '127.0.0.1', accepted: { '0.0.0.0': '0.0.0.0' }, refused: [] },
  PORT: {
    read: (config) => config.port,
    absent: 8080,
    accepted: { '1': 1, '65535': 65_535 },
    refused: ['0', '65536', ...NO_WHOLE_NUMBER],
  },
  BASE_URL: {
    read: (config) => config.baseUrl,
    absent: 'http://127.0.0.1:8080',
    accepted: { 'https://speech.example': 'https://speech.example', 'http://a.example:81/': 'http://a.example:81' },
    refused: NO_ORIGIN,
  },
  SERVICE_NAME: {
    read: (config) => config.serviceName,
    absent: 'speechgate',
    accepted: { 'My voices': 'My voices' },
    refused: ['a"b', 'a\\b', 'ä', 'a\nb', 'x'.repeat(101)],
  },
  DATA_DIR: {
    read: (config) => config.dataDir,
    absent: resolve('data'),
    accepted: { '/var/lib/speech': '/var/lib/speech', elsewhere: resolve('elsewhere') },
    refused: [],
  },
  CATALOG_FILE: {
    read: (config) => config.catalog.defaultModel.id,
    absent: 'provider-a/tts-1',
    accepted: { 'src/speech/catalog-default.json': 'provider-a/tts-1' },
    refused: ['no-such-file.json', 'package.json'],
  },
  SPEECH_BASE_URL: {
    read: (config) => config.speech?.baseUrl,
    absent: undefined,
    accepted: {
      'embedded:': 'embedded:',
      'http://speech.internal/v1': 'http://speech.internal/v1',
      'https://speech.internal/api/v1/': 'https://speech.internal/api/v1',
    },
    refused: [
      'speech.internal/v1',
      'ftp://speech.internal/v1',
      'https://speech.internal',
      'https://speech.internal/v2',
      'https://speech.internal/v1?key=1',
    ],
  },
  SPEECH_API_KEY: {
    read: (config) => config.speech?.apiKey,
    absent: undefined,
    accepted: { key: 'key' },
    refused: [],
    beside: UPSTREAM,
  },
  SPEECH_TIMEOUT_MS: {
    read: (config) => config.speech?.timeoutMs,
    absent: 45_000,
    accepted: { '100': 100, '600000': 600_000 },
    refused: ['99', '600001', ...NO_WHOLE_NUMBER],
    beside: UPSTREAM,
  },
  STRIPE_SECRET_KEY: {
    read: (config) => config.card?.secretKey,
    absent: undefined,
    accepted: { sk_test_1: 'sk_test_1', sk_live_1: 'sk_live_1', rk_test_1: 'rk_test_1', rk_live_1: 'rk_live_1' },
    refused: ['pk_test_1', 'sk_test_', 'sk_test_1 2'],
  },
  STRIPE_API_BASE: {
    read: (config) => config.card?.apiBase,
    absent: undefined,
    accepted: { 'http://127.0.0.1:12111': 'http://127.0.0.1:12111' },
    refused: NO_ORIGIN,
    beside: PROCESSOR,
  },
  CHECKOUT_ORIGIN: {
    read: (config) => config.card?.checkoutOrigin,
    absent: 'https://checkout.stripe.com',
    accepted: { 'https://checkout.example': 'https://checkout.example' },
    refused: NO_ORIGIN,
    beside: PROCESSOR,
  },
  TOP_UP_MAX_CENTS: {
    read: (config) => config.card?.topUpMaxCents,
    absent: 100_000,
    accepted: { '500': 500, '99999999': 99_999_999 },
    refused: ['499', '100000000', ...NO_WHOLE_NUMBER],
    beside: PROCESSOR,
  },
  AUDIO_STORE: {
    read: (config) => config.jobs.audioStore,
    absent: `file:${resolve('data/audio')}`,
    accepted: { 'file:audio': 'file:audio', 's3://voices/some/prefix': 's3://voices/some/prefix' },
    refused: ['audio', 'file:', 's3://', 's3://UPPER', 's3://voices/../other', 'https://voices.example'],
  },
  AUDIO_RETENTION_SECONDS: {
    read: (config) => config.jobs.audioRetentionSeconds,
    absent: 604_800,
    accepted: { '1': 1, '315360000': 315_360_000 },
    refused: ['0', '315360001', ...NO_WHOLE_NUMBER],
  },
  JOB_SIGNING_SECRET: {
    read: (config) => config.jobs.signingSecrets,
    absent: [],
    accepted: {
      [SECRET]: [SECRET],
      [`${SECRET}, ${'t'.repeat(40)},`]: [SECRET, 't'.repeat(40)],
      ['ä'.repeat(16)]: ['ä'.repeat(16)],
      ',': [],
    },
    refused: ['s'.repeat(31), `${SECRET},short`, `short,${SECRET}`],
  },
  FEEDBACK_SECRET: {
    read: (config) => config.feedback?.secrets,
    absent: undefined,
    accepted: { [SECRET]: [SECRET], [`${SECRET},${'t'.repeat(40)}`]: [SECRET, 't'.repeat(40)], ',': undefined },
    refused: ['s'.repeat(31), `${SECRET},short`],
  },
  TOP_UP_RATE_LIMIT_MAX: {
    read: (config) => config.card?.topUpRateLimitMax,
    absent: 10,
    accepted: { '1': 1, '1000000000': 1_000_000_000 },
    refused: ['0', '1000000001', ...NO_WHOLE_NUMBER],
    beside: PROCESSOR,
  },
  FEEDBACK_MAX_PER_HOUR: {
    read: (config) => config.feedback?.maxPerHour,
    absent: 60,
    accepted: { '1': 1, '1000000': 1_000_000 },
    refused: ['0', '1000001', ...NO_WHOLE_NUMBER],
    beside: { FEEDBACK_SECRET: SECRET },
  },
  FEEDBACK_RETENTION_DAYS: {
    read: (config) => config.feedback?.retentionDays,
    absent: 365,
    accepted: { '1': 1, '36500': 36_500 },
    refused: ['0', '36501', ...NO_WHOLE_NUMBER],
    beside: { FEEDBACK_SECRET: SECRET },
  },
  FEEDBACK_CHALLENGE_TTL_SECONDS: {
    read: (config) => config.feedback?.challengeTtlSeconds,
    absent: 600,
    accepted: { '1': 1, '900': 900 },
    refused: ['0', '901', ...NO_WHOLE_NUMBER],
    beside: { FEEDBACK_SECRET: SECRET },
  },
  SMTP_URL: {
    read: (config) => config.feedback?.mail?.smtpUrl,
    accepted: {
      'smtp://127.0.0.1:2525': 'smtp://127.0.0.1:2525',
      'smtps://user:p%40ss@mail.example?requireTLS=true': 'smtps://user:p%40ss@mail.example?requireTLS=true',
    },
    refused: ['mail.example', 'http://mail.example', 'smtp:', 'smtp:///x'],
    beside: { FEEDBACK_SECRET: SECRET, FEEDBACK_FROM: 'from@a.example', FEEDBACK_TO: 'to@a.example' },
    half: true,
  },
  FEEDBACK_FROM: {
    read: (config) => config.feedback?.mail?.from,
    accepted: {
      'from@a.example': { name: '', address: 'from@a.example' },
      'The gateway <from@a.example>': { name: 'The gateway', address: 'from@a.example' },
      '"A, B" <from@a.example>': { name: 'A, B', address: 'from@a.example' },
    },
    refused: [
      'nobody',
      '@a.example',
      'from@',
      'a@a.example, b@a.example',
      'a b@c d',
      'A <a>',
      'group: a@a.example, b;',
    ],
    beside: { FEEDBACK_SECRET: SECRET, SMTP_URL: 'smtp://127.0.0.1', FEEDBACK_TO: 'to@a.example' },
    half: true,
  },
  FEEDBACK_TO: {
    read: (config) => config.feedback?.mail?.to,
    accepted: {
      'to@a.example': [{ name: '', address: 'to@a.example' }],
      'to@a.example, Two <two@a.example>': [
        { name: '', address: 'to@a.example' },
        { name: 'Two', address: 'two@a.example' },
      ],
    },
    refused: ['nobody', 'to@a.example, nobody', ',', 'a@a.example\nBcc: b@b.example'],
    beside: { FEEDBACK_SECRET: SECRET, SMTP_URL: 'smtp://127.0.0.1', FEEDBACK_FROM: 'from@a.example' },
    half: true,
  },
  JOB_CONCURRENCY: {
    read: (config) => config.jobs.concurrency,
    absent: 2,
    accepted: { '1': 1, '100': 100 },
    refused: ['0', '101', ...NO_WHOLE_NUMBER],
  },
  X402_PAY_TO: {
    read: (config) => config.x402?.payees[0]?.address,
    absent: undefined,
    accepted: { [USDC]: USDC, [`${USDC.toLowerCase()}:current:2026-01-01`]: USDC },
    refused: ['alice.eth', `${USDC}:former`, `${USDC},${USDC}`, `${USDC}:next`],
    beside: FACILITATOR,
    half: true,
  },
  X402_FACILITATOR_URL: {
    read: (config) => config.x402?.facilitatorUrl,
    absent: undefined,
    accepted: { 'https://facilitator.example/x402': 'https://facilitator.example/x402' },
    refused: ['facilitator.example', 'ftp://facilitator.example'],
    beside: { X402_PAY_TO: USDC },
    half: true,
  },
  X402_FACILITATOR_AUTH: {
    read: (config) => config.x402?.facilitatorToken,
    absent: undefined,
    accepted: { token: 'token' },
    refused: [],
    beside: X402,
  },
  X402_RPC_URL: {
    read: (config) => config.x402?.rpcUrls,
    absent: undefined,
    accepted: {
      'https://node.example/key': ['https://node.example/key'],
      'https://a.example/, http://b.example/,https://a.example': ['https://a.example/', 'http://b.example/'],
    },
    refused: ['node.example', 'ipc:/node', 'https://node.example/,ipc:/node'],
    beside: X402,
  },
  X402_NETWORK: {
    read: (config) => config.x402?.asset.chainId,
    absent: 8453,
    accepted: { 'eip155:84532': 84_532 },
    refused: ['base', 'eip155:', 'eip155:0', 'solana:1'],
    beside: X402,
  },
  X402_ASSET: {
    read: (config) => config.x402?.asset.address,
    absent: USDC,
    accepted: { [USDC.toLowerCase()]: USDC },
    refused: ['USDC', '0x1234'],
    beside: X402,
  },
  X402_ASSET_NAME: {
    read: (config) => config.x402?.asset.name,
    absent: 'USD Coin',
    accepted: { USDC: 'USDC' },
    refused: [],
    beside: X402,
  },
  X402_ASSET_VERSION: {
    read: (config) => config.x402?.asset.version,
    absent: '2',
    accepted: { '1': '1' },
    refused: [],
    beside: X402,
  },
  X402_PROBE_ANSWER: {
    read: (config) => config.x402?.probeAnswer,
    absent: 400,
    accepted: { '400': 400, '402': 402 },
    refused: ['200', '0402', 'true'],
    beside: X402,
  },
  QUOTE_SECRET: {
    read: (config) => config.quotes?.secrets,
    absent: undefined,
    accepted: { [SECRET]: [SECRET], [`${SECRET}, ${'t'.repeat(40)}`]: [SECRET, 't'.repeat(40)] },
    refused: ['short', `${SECRET},short`],
  },
  QUOTE_TTL_SECONDS: {
    read: (config) => config.quotes?.ttlSeconds,
    absent: 300,
    accepted: { '1': 1, '86400': 86_400 },
    refused: ['0', '86401', ...NO_WHOLE_NUMBER],
    beside: { QUOTE_SECRET: SECRET },
  },
  SIGNING_KEYS_FILE: {
    read: (config) => config.signingKeys,
    absent: undefined,
    accepted: {},
    refused: ['no-such-file.json', 'package.json', 'README.md'],
  },
  TRUST_PROXY: {
    read: (config) => config.trustProxy,
    absent: [],
    accepted: {
      '10.0.0.0/8, 192.0.2.7,': ['10.0.0.0/8', '192.0.2.7'],
      '2001:db8::/128,::1': ['2001:db8::/128', '::1'],
    },
    refused: ['1', 'true', 'proxy.example', '10.0.0.0/33', '::1/129', '10.0.0.0/8/8', '10.0.0.0/', '10.0.0.1,no'],
  },
  RATE_LIMIT_MAX: {
    read: (config) => config.rateLimit.max,
    absent: 30,
    accepted: { '1': 1, '1000000000': 1_000_000_000 },
    refused: ['0', '1000000001', ...NO_WHOLE_NUMBER],
  },
  RATE_LIMIT_WINDOW_SECONDS: {
    read: (config) => config.rateLimit.windowSeconds,
    absent: 60,
    accepted: { '1': 1, '86400': 86_400 },
    refused: ['0', '86401', ...NO_WHOLE_NUMBER],
  },
  EDGE_RATE_LIMIT_MAX: {
    read: (config) => config.edgeRateLimitMax,
    absent: 600,
    accepted: { '1': 1, '1000000000': 1_000_000_000 },
    refused: ['0', '1000000001', ...NO_WHOLE_NUMBER],
  },
  MAX_CONNECTIONS: {
    read: (config) => config.maxConnections,
    absent: 10_000,
    accepted: { '1': 1, '1000000': 1_000_000 },
    refused: ['0', '1000001', ...NO_WHOLE_NUMBER],
  },
  RECONCILE_INTERVAL_MS: {
    read: (config) => config.reconcileIntervalMs,
    absent: 15_000,
    accepted: { '100': 100, '86400000': 86_400_000 },
    refused: ['99', '86400001', ...NO_WHOLE_NUMBER],
  },
  ADMIN_PORT: {
    read: (config) => config.adminPort,
    absent: undefined,
    accepted: { '9000': 9000 },
    refused: ['0', '65536', ...NO_WHOLE_NUMBER],
  },
  ADMIN_HOST: {
    read: (config) => config.admin,
    absent: { host: '127.0.0.1', names: [] },
    accepted: {
      '0.0.0.0': { host: '0.0.0.0', names: [] },
      '::': { host: '::', names: [] },
      'Admin.internal': { host: 'admin.internal', names: ['admin.internal'] },
      '10.0.0.7, metrics.internal,Ops': { host: '10.0.0.7', names: ['metrics.internal', 'ops'] },
      ',': { host: '127.0.0.1', names: [] },
    },
    refused: [
      '*',
      '127.0.0.1:9000',
      '[::1]',
      'http://127.0.0.1',
      '127.0.0.1,*.internal',
      '127.0.0.1,10.0.0.8',
      '300.1.1.1',
    ],
  },
  LOG_LEVEL: {
    read: (config) => config.logLevel,
    absent: 'info',
    accepted: { silent: 'silent', trace: 'trace' },
    refused: ['verbose', 'INFO'],
  },
};

function configOf(env: NodeJS.ProcessEnv): Config {
  const result = readConfig(env);
  return 'config' in result ? result.config : assert.fail(describeFaults(result.faults));
}

function faultsOf(env: NodeJS.ProcessEnv): readonly SettingFault[] {
  const result = readConfig(env);
  return 'faults' in result ? result.faults : assert.fail('no fault');
}

const namesOf = (faults: readonly SettingFault[]) => faults.map((fault) => fault.name);
const shown = (value: string) => JSON.stringify(value.length > 50 ? `${value.slice(0, 50)}…` : value);

test('these tests know every variable that is read', async () => {
  const asked = new Set<string>();
  readConfig(new Proxy<NodeJS.ProcessEnv>({}, { get: (_env, name) => void asked.add(String(name)) }));
  assert.deepEqual([...asked].sort(), Object.keys(settings).sort());
});

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
      assert.match(fault.problem, /^(is|does|can't|holds|names) /);
      assert.match(fault.fix, /^[A-Z].*\.$/);
    });
  }
}

test('BASE_URL is by default where the gateway listens', async () => {
  assert.equal(configOf({ DATABASE_URL, HOST: '192.0.2.7', PORT: '81' }).baseUrl, 'http://192.0.2.7:81');
  assert.equal(configOf({ DATABASE_URL, HOST: '::1' }).baseUrl, 'http://[::1]:8080');
});

test('AUDIO_STORE is by default a directory in DATA_DIR', async () => {
  assert.equal(configOf({ DATABASE_URL, DATA_DIR: '/var/lib/speech' }).jobs.audioStore, 'file:/var/lib/speech/audio');
});

test('the embedded voice takes no key', async () => {
  assert.deepEqual(configOf({ DATABASE_URL, SPEECH_BASE_URL: 'embedded:', SPEECH_API_KEY: 'key' }).speech, {
    baseUrl: 'embedded:',
    apiKey: undefined,
    timeoutMs: 45_000,
    streaming: { totalMs: 900_000, leaseSeconds: 75, waitingBytes: 256 * 1024 * 1024 },
  });
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
    Object.entries(settings).flatMap(
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
