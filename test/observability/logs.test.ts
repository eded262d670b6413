import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { createLogger } from '../../src/observability/logger.ts';
import { catalogFile } from '../support/catalog-file.ts';
import { testChain, wallet } from '../support/chain.ts';
import { testCheckout } from '../support/checkout.ts';
import { programCommand, startChild, startCommand } from '../support/child.ts';
import { payDeposit } from '../support/deposit.ts';
import { refused } from '../support/facilitator-faults.ts';
import { type Gateway, type Reply, startGateway } from '../support/gateway.ts';
import { later } from '../support/jobs.ts';
import { domainOf, HELLO, TTS, withCredential } from '../support/prepaid.ts';
import { mp3, openAiError, startStubUpstream, testUpstream } from '../support/stub-upstream.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';
import { payFor, startX402Gateway, type X402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();

interface Line {
  readonly name: string;
  readonly number: number;
  readonly msg: string;
}

const WRITER = 'test/observability/log-writer.ts';
const COUNT = 1_234;

/** The lines of the log in an output: all that begin like one are whole, but for an unfinished last one. */
const linesOf = (output: string): Line[] =>
  output
    .split('\n')
    .slice(0, -1)
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line));

const write = (t: Test, count: number, end: string) => startChild(t, WRITER, {}, ['one', String(count), end]);

/**
 * All lines of a writer are there, in order, each as it was written.
 * @param maxLate how many writes may have been overtaken by later ones
 */
function assertComplete(lines: readonly Line[], name: string, count: number, maxLate = 0): void {
  const own = lines.filter((line) => line.name === name);
  const late = own.filter(({ number }, index) => number < (own[index - 1]?.number ?? 0));
  assert.ok(late.length <= maxLate, `writes overtaken: ${late.length}`);
  assert.deepEqual(
    own.sort((a, b) => a.number - b.number).map(({ number, msg }) => [number, msg.length]),
    Array.from({ length: count }, (_, number) => [number, (number * 37) % 400]),
  );
}

// Where a process ends at once, what is left is flushed beside the one write that is under way.
for (const [what, end, code, maxLate] of [
  ['ends', 'end', 0, 0],
  ['calls process.exit', 'exit', 3, 1],
  ['throws an uncaught error', 'throw', 1, 1],
] as const) {
  test(`all lines are written when a process ${what}`, async (t) => {
    const child = write(t, COUNT, end);
    t.equal(await child.ended(), code);
    await until(() => child.process.stdout?.readableEnded === true);
    assertComplete(linesOf(child.output()), 'one', COUNT, maxLate);
  });
}

test('a line is written even if no line follows', async (t) => {
  const child = write(t, 1, 'stay');
  await until(() => linesOf(child.output()).length === 1);
});

test('a killed process loses at most its last lines', async (t) => {
  const child = write(t, COUNT, 'tick');
  await until(() => linesOf(child.output()).length > COUNT + 100);
  await child.stop('SIGKILL');
  await until(() => child.process.stdout?.readableEnded === true);
  assertComplete(linesOf(child.output()).slice(0, COUNT), 'one', COUNT);
});

test('writers that share a pipe do not break each other’s lines', async (t) => {
  const writers = ['one', 'two', 'three'];
  const meeting = await temporaryFolder(t);
  const start = (name: string) =>
    programCommand(WRITER, name, String(5 * COUNT), 'end', meeting, String(writers.length)).join(' ');
  // A pipe of the shell's, since those that Node makes are sockets.
  const child = startCommand(t, ['sh', '-c', `(${writers.map(start).join(' & ')} & wait) | cat`], { isGroup: true });
  t.equal(await child.ended(), 0);
  const lines = linesOf(child.output());
  for (const name of writers) assertComplete(lines, name, 5 * COUNT);
  const changes = lines.filter(({ name }, index) => lines[index - 1]?.name !== name).length;
  t.ok(changes > writers.length, 'they did write at the same time');
});

test('a log line escapes control characters and keeps its value', async (t) => {
  const hostile = 'x\u001b[2J\u009b31m\u202eysp\u2028\u007f\ud83d\ude00é\n';
  const lines: string[] = [];
  const log = createLogger('info', { write: (line) => lines.push(line) });
  log.error({ err: new Error(hostile), userAgent: hostile }, hostile);
  const [line = ''] = lines;
  t.match(line, /^[\x20-\x7e]+\n$/);
  const { err, userAgent, msg } = JSON.parse(line);
  t.strictSame([err.message, userAgent, msg], [hostile, hostile, hostile]);
});

/** The settings that errors in the log name, and how often the metric counts each of those in use. */
async function refusals({ app, log }: Gateway): Promise<{ logged: unknown[]; counted: Record<string, number> }> {
  const scrape = (await app.admin.inject({ url: '/metrics', headers: { host: 'localhost' } })).body;
  const samples = [...scrape.matchAll(/^speechgate_refused_credentials_total\{setting="(\w+)"\} (\d+)$/gm)];
  return {
    logged: log.filter(({ level, setting }) => level === 'error' && setting).map(({ setting }) => setting),
    counted: Object.fromEntries(samples.map(([, setting, count]) => [setting, Number(count)])),
  };
}

const speak = async (gateway: Gateway, account: string): Promise<number> => {
  const call = { method: 'POST', json: { text: 'Hello world' }, headers: { 'x-credit-account': account } };
  return (await gateway.call('/tts', call)).status;
};

test('an upstream that refuses the key with 401 or 403 is logged with SPEECH_API_KEY', async (t) => {
  const upstream = await testUpstream(t);
  const env = { SPEECH_BASE_URL: upstream.url, SPEECH_API_KEY: 'sk-secret', LOG_LEVEL: 'error' };
  const gateway = await startGateway(t, env);
  const account = await gateway.fund(500);
  for (const mode of [openAiError(400), openAiError(404), openAiError(429), openAiError(500), mp3()]) {
    upstream.mode = mode;
    await speak(gateway, account);
  }
  const before = await refusals(gateway);
  t.strictSame([before.logged, before.counted.SPEECH_API_KEY], [[], 0]);
  for (const status of [401, 403]) {
    upstream.mode = openAiError(status);
    t.equal(await speak(gateway, account), 502);
  }
  const { logged, counted } = await refusals(gateway);
  t.strictSame([logged, counted.SPEECH_API_KEY], [['SPEECH_API_KEY', 'SPEECH_API_KEY'], 2]);
  t.notMatch(JSON.stringify(gateway.log), /sk-secret|Hello world/);
});

test("a catalog upstream that refuses its key is logged with that key's variable", async (t) => {
  const upstream = await startStubUpstream({ mode: openAiError(401) });
  t.teardown(() => upstream.close());
  const file = await catalogFile(t, {
    ...{ markupPercent: 100, defaultModel: 'acme/one' },
    upstreams: [{ name: 'cloud', baseUrl: upstream.url, keyVariable: 'CLOUD_KEY' }],
    models: [
      {
        ...{ id: 'acme/one', provider: 'acme', name: 'One', description: 'A model.', upstreamModel: 'one' },
        ...{ baseRatePicoUsdPerCharacter: 1_000_000, maxInputCharacters: 100, defaultVoice: 'anna', available: true },
        voices: [{ voice: 'anna', name: 'Anna', upstreamVoice: 'anna' }],
        upstreams: [{ name: 'cloud' }],
      },
    ],
  });
  const env = { CATALOG_FILE: file, CLOUD_KEY: 'sk-cloud', SPEECH_BASE_URL: '', LOG_LEVEL: 'error' };
  const gateway = await startGateway(t, env);
  t.equal(await speak(gateway, await gateway.fund(500)), 502);
  const { logged, counted } = await refusals(gateway);
  t.strictSame([logged, counted.CLOUD_KEY], [['CLOUD_KEY'], 1]);
});

test('a facilitator that refuses the token is logged with X402_FACILITATOR_AUTH', { skip }, async (t) => {
  const env = { X402_FACILITATOR_AUTH: 'old-token', LOG_LEVEL: 'error' };
  const gateway = await startX402Gateway(t, chain, env, { facilitator: { auth: 'new-token' } });
  t.equal((await refusals(gateway)).counted.X402_FACILITATOR_AUTH, 0);
  const { reply } = await payFor(gateway, await wallet(chain.client, 1_000_000n));
  t.equal(reply.status, 502);
  t.equal(reply.json.error.code, 'PAYMENT_ERROR');
  const { logged, counted } = await refusals(gateway);
  t.strictSame([logged, counted.X402_FACILITATOR_AUTH], [['X402_FACILITATOR_AUTH'], 1]);
  t.notMatch(JSON.stringify(gateway.log), /old-token|new-token/);
});

test('a card processor that refuses the key is logged with STRIPE_SECRET_KEY', async (t) => {
  const checkout = await testCheckout(t);
  const gateway = await startGateway(t, { ...checkout.env, STRIPE_SECRET_KEY: 'sk_test_revoked', LOG_LEVEL: 'error' });
  const buy = { method: 'POST', headers: { 'content-type': 'application/x-www-form-urlencoded' }, body: 'amount=500' };
  t.equal((await gateway.call('/top-up', buy)).status, 502);
  await gateway.app.reconcilers.turn();
  const { logged, counted } = await refusals(gateway);
  t.ok(logged.length >= 2, 'by the purchase and by the reconcilers');
  t.strictSame([...new Set(logged)], ['STRIPE_SECRET_KEY']);
  t.equal(counted.STRIPE_SECRET_KEY, logged.length);
});

interface FailingPayment {
  readonly expected: readonly [status: number, code: string, reason: string];
  /** The line that says why. */
  readonly cause?: RegExp;
  pay(gateway: X402Gateway): Promise<Reply>;
}

const payerOf = () => wallet(chain.client, 1_000_000n);

const FAILING_PAYMENTS: Readonly<Record<string, FailingPayment>> = {
  'a card request whose speech fails': {
    expected: [502, 'TTS_UPSTREAM_ERROR', 'none'],
    cause: /^speech synthesis failed, and the caller was not charged\. Read err for the cause$/,
    pay: async ({ call, fund, upstream }) => {
      upstream.mode = openAiError(400);
      return call('/tts', { ...HELLO, headers: { 'x-credit-account': await fund(500) } });
    },
  },
  'a job whose idempotency key is reused': {
    expected: [400, 'INVALID_REQUEST', 'same request'],
    pay: async (gateway) => {
      const account = await gateway.fund(500);
      await later(gateway, account, { key: 'one' });
      return later(gateway, account, { key: 'one', text: 'another text' });
    },
  },
  'a prepaid request without a deposit': {
    expected: [402, 'PAYMENT_REQUIRED', 'never_deposited'],
    pay: async ({ call, payTo }) => call(TTS, await withCredential(await payerOf(), domainOf(payTo), TTS, HELLO)),
  },
  'a direct payment that can not be verified': {
    expected: [502, 'PAYMENT_ERROR', 'payment_service_failed'],
    cause: /^a facilitator failed to check a payment/,
    pay: async (gateway) => {
      gateway.facilitator.faults.verify('reset');
      return (await payFor(gateway, await payerOf())).reply;
    },
  },
  'a direct payment whose settlement is refused': {
    expected: [402, 'PAYMENT_REQUIRED', 'insufficient_funds'],
    cause: /^the facilitator refused to settle a payment/,
    pay: async (gateway) => {
      gateway.facilitator.faults.settle(refused('insufficient_funds'));
      return (await payFor(gateway, await payerOf())).reply;
    },
  },
  'a deposit with an unknown outcome': {
    expected: [409, 'PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown'],
    cause: /^it is unknown whether a payment was settled/,
    pay: async (gateway) => {
      gateway.facilitator.faults.settle({ broadcast: false, answer: 'reset' });
      return (await payDeposit(gateway, await payerOf())).reply;
    },
  },
  'a purchase that the processor refuses': {
    expected: [502, 'PAYMENT_ERROR', 'processor_failed'],
    cause: /^the card processor did not open a checkout, and nobody was charged\. Read err for the cause$/,
    pay: ({ call }) => {
      const headers = { 'content-type': 'application/x-www-form-urlencoded' };
      return call('/top-up', { method: 'POST', headers, body: 'amount=500' });
    },
  },
};

test('each line of a failing payment has its trace id, and its request line says why', { skip }, async (t) => {
  const env = { LOG_LEVEL: 'info' };
  const gateway = await startX402Gateway(t, chain, env, { confirmationTimeoutMs: 200, inclusionTimeoutMs: 200 });
  const begun = gateway.log.length;
  for (const [name, { expected, cause, pay }] of Object.entries(FAILING_PAYMENTS)) {
    await t.test(name, async (t) => {
      gateway.upstream.mode = mp3();
      const reply = await pay(gateway);
      const traceId = reply.headers.get('x-trace-id');
      await until(() => gateway.log.some((line) => line.traceId === traceId && line.msg === 'request'));
      const own = gateway.log.filter((line) => line.traceId === traceId);
      const request = own.find(({ msg }) => msg === 'request');
      t.strictSame([reply.status, request?.code, request?.reason ?? 'none'], expected, reply.text);
      const causes = own.filter(({ level }) => level === 'warn' || level === 'error').map(({ msg }) => msg);
      t.strictSame(
        causes.map((msg) => cause?.test(msg)),
        cause ? [true] : [],
      );
    });
  }
  t.strictSame(
    gateway.log.slice(begun).filter(({ traceId }) => traceId === undefined),
    [],
  );
});

test('an error of the database names its statement', async (t) => {
  const gateway = await startGateway(t, { LOG_LEVEL: 'info', SPEECH_BASE_URL: (await testUpstream(t)).url });
  const account = await gateway.fund(500);
  await sql`alter table transfer rename to away`.execute(gateway.db);
  t.equal(await speak(gateway, account), 503);
  const failed = gateway.log.find(({ msg }) => msg.startsWith('a request failed'));
  t.match(JSON.stringify(failed?.err), /"statement":"hold"/);
});
