import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { catalogFile } from '../support/catalog-file.ts';
import { testChain, wallet } from '../support/chain.ts';
import { DEPOSIT, DEPOSIT_PATH, mineSteadily, payDeposit, payUnknown } from '../support/deposit.ts';
import { refused } from '../support/facilitator-faults.ts';
import { type Call, type Gateway, type Reply, startGateway } from '../support/gateway.ts';
import { bookDeposit, domainOf, withCredential } from '../support/prepaid.ts';
import { projectFile } from '../support/project.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';
import {
  challengeOf,
  HELLO,
  PRICE,
  payFor,
  sign,
  startX402Gateway,
  timesPaid,
  type X402Gateway,
} from '../support/x402.ts';

const { chain, skip } = await testChain();
const TTS = '/x402/tts';
const JOBS = '/tts?async=true';
const TEXT = 'Hello world';
const VOICE = 'provider-a_alloy';
const ORDER = { text: TEXT, voice: VOICE };

/** A request that was paid once, and what its identical repetition has to be answered. */
interface Paid {
  readonly path: string;
  readonly call: Call;
  assertAnswered(reply: Reply): void;
}

const builtIn = async () => JSON.parse(await readFile(projectFile('src/config/catalog-default.json'), 'utf8'));

/** The built-in catalog, changed. */
// biome-ignore lint/suspicious/noExplicitAny: a catalog as its file has it.
async function changed(t: Test, change: (model: any) => object): Promise<Record<string, string>> {
  const catalog = await builtIn();
  return { CATALOG_FILE: await catalogFile(t, { ...catalog, models: catalog.models.map(change) }) };
}

// biome-ignore lint/suspicious/noExplicitAny: a voice as its file has it.
const withoutVoice = (model: any) => ({
  ...model,
  defaultVoice: 'nova',
  voices: model.voices.filter(({ voice }: { voice: string }) => voice !== 'alloy'),
});

/** What an operator may change between a request and its repetition; the names of settings that are then unset. */
const CHANGES: Readonly<Record<string, (t: Test) => Promise<Record<string, string>>>> = {
  'a new quote secret': async () => ({ QUOTE_SECRET: 'another-quote-secret-of-32-bytes-or-more' }),
  'no quote secret': async () => ({ QUOTE_SECRET: '' }),
  'the voice removed': (t) => changed(t, withoutVoice),
  'the price raised': (t) => changed(t, (model) => ({ ...model, baseRatePicoUsdPerCharacter: 1_500_000_000 })),
  'the text cap lowered': (t) => changed(t, (model) => ({ ...model, maxInputCharacters: 5 })),
  'another payee': async () => ({ X402_PAY_TO: '0xcA11bde05977b3631167028862bE2a173976CA11' }),
  'no chain node': async () => ({ X402_RPC_URL: '' }),
  'payment under x402 off': async () => ({ X402_PAY_TO: '', X402_FACILITATOR_URL: '', X402_RPC_URL: '' }),
  'payment by card off': async () => ({ STRIPE_SECRET_KEY: '', STRIPE_API_BASE: '' }),
  'no speech provider': async () => ({ SPEECH_BASE_URL: '' }),
  'another network': async () => ({ X402_NETWORK: 'eip155:84532' }),
};

async function payQuoted(gateway: Gateway): Promise<object> {
  const textSha256 = createHash('sha256').update(TEXT).digest('hex');
  const json = { textLength: TEXT.length, textSha256, voice: VOICE };
  const quote = await gateway.call(`${TTS}/quote`, { method: 'POST', json });
  return { quoteToken: quote.json.quoteToken, text: TEXT };
}

const directPaid = (reply: Reply, path: string, call: Call): Paid => {
  assert.equal(reply.status, 200, reply.text);
  return {
    path,
    call,
    assertAnswered: (again) => {
      assert.equal(again.status, 200, again.text);
      assert.equal(again.headers.get('x-idempotent-replay'), 'true');
      assert.ok(again.bytes.equals(reply.bytes));
    },
  };
};

async function direct(gateway: X402Gateway, json: object): Promise<Paid> {
  const payer = await wallet(chain.client, 1_000_000n);
  const { reply, paid } = await payFor(gateway, payer, { method: 'POST', json });
  return directPaid(reply, TTS, paid);
}

async function prepaid(gateway: X402Gateway, json: object): Promise<Paid> {
  const payer = await wallet(chain.client);
  await bookDeposit(gateway.db, payer.address.toLowerCase(), 10_000n);
  const call = await withCredential(payer, domainOf(gateway.payTo), TTS, { method: 'POST', json });
  assert.equal((await gateway.call(TTS, call)).status, 200);
  return {
    path: TTS,
    call,
    assertAnswered: ({ status, json }) => {
      assert.deepEqual([status, json.error.code], [409, 'PREPAID_NONCE_REPLAYED']);
      assert.notEqual(json.error.details.payment.state, 'not_charged');
    },
  };
}

const PAID: Readonly<Record<string, (t: Test, gateway: X402Gateway) => Promise<Paid>>> = {
  direct: (_t, gateway) => direct(gateway, ORDER),
  'direct, quoted': async (_t, gateway) => direct(gateway, await payQuoted(gateway)),
  prepaid: (_t, gateway) => prepaid(gateway, ORDER),
  'prepaid, quoted': async (_t, gateway) => prepaid(gateway, await payQuoted(gateway)),
  deposit: async (t, gateway) => {
    const stop = mineSteadily(t, chain);
    const payer = await wallet(chain.client, 1_000_000n);
    const { reply, paid } = await payDeposit(gateway, payer);
    stop();
    assert.equal(reply.status, 200, reply.text);
    return {
      path: DEPOSIT_PATH,
      call: paid,
      assertAnswered: ({ status, json }) =>
        assert.deepEqual([status, json.alreadyCredited, json.balanceMicroUsd], [200, true, DEPOSIT]),
    };
  },
  job: async (_t, gateway) => {
    const account = await gateway.fund(500);
    const headers = { 'x-credit-account': account, 'idempotency-key': randomUUID() };
    const call = { method: 'POST', json: ORDER, headers };
    const first = await gateway.call(JOBS, call);
    assert.equal(first.status, 202, first.text);
    return {
      path: JOBS,
      call,
      assertAnswered: ({ status, json, headers }) => {
        assert.deepEqual([status, json.jobId], [202, first.json.jobId]);
        assert.equal(headers.get('x-credit-charged'), '198');
      },
    };
  },
};

test('R45: a paid request is replayed after any change of settings', { skip }, async (t) => {
  const audio = await temporaryFolder(t);
  const env = { AUDIO_STORE: `file:${audio}` };
  const before = await startX402Gateway(t, chain, env);
  const paid: Paid[] = [];
  for (const pay of Object.values(PAID)) paid.push(await pay(t, before));
  const settings = {
    X402_PAY_TO: before.payTo,
    X402_FACILITATOR_URL: before.facilitator.url,
    X402_RPC_URL: chain.rpcUrl,
    SPEECH_BASE_URL: before.upstream.url,
    ...env,
  };
  for (const [change, make] of Object.entries(CHANGES)) {
    const after = await startGateway(t, { ...settings, ...(await make(t)) }, { databaseUrl: before.databaseUrl });
    await t.test(change, async () => {
      for (const { path, call, assertAnswered } of paid) assertAnswered(await after.call(path, call));
    });
    await after.app.close();
  }
  t.strictSame(await audit(before.db), []);
});

test('R48: a replay beyond the rate limit leaves its stored audio closed', { skip }, async (t) => {
  const { openFiles } = await import(projectFile('test/support/open-files.mjs').href);
  const before = await startX402Gateway(t, chain);
  const { reply, paid } = await payFor(before, await wallet(chain.client, PRICE));
  t.equal(reply.status, 200, reply.text);
  const { dataDir } = before.config;
  const settings = { X402_PAY_TO: before.payTo, X402_RPC_URL: chain.rpcUrl, AUDIO_STORE: `file:${dataDir}/audio` };
  // Without a provider the request is refused, and then looked up.
  const unset = { SPEECH_BASE_URL: '', X402_FACILITATOR_URL: before.facilitator.url };
  const env = { ...settings, ...unset, RATE_LIMIT_MAX: '2' };
  const after = await startGateway(t, env, { databaseUrl: before.databaseUrl });
  for (const status of [200, 429]) t.equal((await after.call(TTS, paid)).status, status);
  await until(() => openFiles().filter((file: string) => /audio\/[0-9a-f]{2}\/./.test(file)).length === 0);
});

test('R22: the canonical query identifies a direct GET request', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const { reply, paid } = await payFor(gateway, payer, {}, `${TTS}?text=Hello%20world&speed=1&voice=${VOICE}`);
  const { assertAnswered } = directPaid(reply, TTS, paid);
  for (const same of [
    `${TTS}?voice=${VOICE}&text=Hello%20world&speed=1`,
    `${TTS}?text=Hello+world&speed=1&voice=${VOICE}`,
    `${TTS}?t%65xt=H%65llo%20world&speed=1&voice=${VOICE}`,
  ]) {
    assertAnswered(await gateway.call(same, paid));
  }
  t.equal(await timesPaid(chain, payer), 1);
});

test('R22: another request with a settled payment is referred to the paid one', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const { paid, payload } = await payFor(gateway, payer);
  const other = await gateway.call(TTS, { ...paid, json: { text: 'Other words' } });
  const renamed = await sign(payer, await challengeOf(gateway, TTS, HELLO));
  renamed.payload = payload.payload;
  const header = Buffer.from(JSON.stringify(renamed)).toString('base64');
  const again = await gateway.call(TTS, { ...paid, headers: { ...paid.headers, 'payment-signature': header } });
  for (const { status, json } of [other, again]) {
    t.strictSame([status, json.error.code], [409, 'PAYMENT_IDENTIFIER_CONFLICT']);
    t.match(json.error.message, /repeat it unchanged, with its first signature, to get its response/);
    const { state, amountMicroUsd, transaction } = json.error.details.payment;
    t.strictSame([state, amountMicroUsd], ['charged', 198]);
    t.match(transaction, /^0x[0-9a-f]{64}$/);
  }
});

const payment = ({ db }: X402Gateway) =>
  db.selectFrom('x402_payment').select(['id', 'trace_id']).executeTakeFirstOrThrow();

async function sample(gateway: X402Gateway, name: string): Promise<number> {
  const { body } = await gateway.app.admin.inject({ url: '/metrics' });
  const line = body.split('\n').find((candidate) => candidate.startsWith(`${name} `));
  return Number(line?.slice(name.length + 1) ?? 0);
}

for (const flow of ['direct', 'deposit']) {
  test(`${flow}: the payment and its transfer keep the request's trace id`, { skip }, async (t) => {
    const gateway = await startX402Gateway(t, chain);
    if (flow === 'deposit') mineSteadily(t, chain);
    const payer = await wallet(chain.client, 1_000_000n);
    const { reply } = await (flow === 'direct' ? payFor(gateway, payer) : payDeposit(gateway, payer));
    t.equal(reply.status, 200, reply.text.slice(0, 300));
    const traceId = reply.headers.get('x-trace-id');
    const { id, trace_id } = await payment(gateway);
    t.equal(trace_id, traceId);
    const transfers = await gateway.db.selectFrom('transfer').select(['reference', 'trace_id']).execute();
    t.strictSame(transfers, [{ reference: String(id), trace_id: traceId }]);
    await t.rejects(
      gateway.db.updateTable('x402_payment').set({ trace_id: null }).execute(),
      /what a payment promises never changes/,
    );
    t.strictSame(await audit(gateway.db), []);
    t.equal(await sample(gateway, `speechgate_payments_total{flow="${flow}",event="settled"}`), 1);
  });
}

test('R64: a paid request whose stored audio is lost says that it is paid', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const { reply, paid } = await payFor(gateway, await wallet(chain.client, 1_000_000n));
  t.equal(reply.status, 200, reply.text);
  await rm(gateway.config.jobs.audioStore.replace(/^file:/, ''), { recursive: true });
  const { status, json } = await gateway.call(TTS, paid);
  t.strictSame([status, json.error.code], [503, 'REPLAY_CACHE_UNAVAILABLE']);
  t.equal(json.error.details.payment.state, 'charged');
  t.match(json.error.message, /is paid, but its audio is lost\. Contact the operator/);
});

test('metrics count refused, unknown and later settled payments', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, { LOG_LEVEL: 'info' });
  const { faults } = gateway.facilitator;
  const counts = () =>
    Promise.all(
      ['refused', 'unknown', 'settled'].map((event) =>
        sample(gateway, `speechgate_payments_total{flow="direct",event="${event}"}`),
      ),
    );
  faults.settle(refused('insufficient_funds'));
  await payFor(gateway, await wallet(chain.client, 1_000_000n));
  t.strictSame(await counts(), [1, 0, 0]);
  const line = gateway.log.find(({ msg, flow, status }) => msg === 'request' && flow === 'direct' && status === 402);
  t.strictSame([line?.characters, line?.chargedMicroUsd], [11, undefined], 'the authorization may still land (R23)');
  const payer = await wallet(chain.client, 1_000_000n);
  const { reply, paid } = await payUnknown(gateway, chain, () => payFor(gateway, payer));
  t.strictSame(await counts(), [1, 1, 0]);
  await chain.client.mine({ blocks: 2 });
  const again = await gateway.call('/x402/tts', paid);
  t.equal(again.status, 200);
  const repeated = gateway.log.find(({ first }) => first !== undefined);
  t.strictSame(
    [repeated?.traceId, repeated?.first],
    [again, reply].map(({ headers }) => headers.get('x-trace-id')),
    'the line leads to the request that made the payment',
  );
  t.strictSame(await counts(), [1, 1, 1]);
});
