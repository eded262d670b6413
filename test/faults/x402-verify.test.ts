import assert from 'node:assert/strict';
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../support/chain.ts';
import { DEPOSIT, mineSteadily, payDeposit } from '../support/deposit.ts';
import { testFacilitator } from '../support/facilitator.ts';
import { invalid, VERIFY_FAULTS } from '../support/facilitator-faults.ts';
import { serve } from '../support/listening.ts';
import { garbage, hangInBody, type Mode, mp3, openAiError, resetInBody, wav } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { decodeHeader, PRICE, payFor, startX402Gateway, timesPaid, type X402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();

/** Nothing was paid, nothing is left behind, and the same payment is good once the fault is over. */
async function assertReleasedAndPayable(gateway: X402Gateway, paid: Parameters<typeof gateway.call>[1]) {
  assert.equal(gateway.facilitator.broadcasts.length, 0);
  assert.deepEqual(await gateway.db.selectFrom('x402_payment').select('state').execute(), []);
  const again = await gateway.call('/x402/tts', paid);
  assert.equal(again.status, 200, again.text.slice(0, 300));
  assert.equal(again.headers.get('x-idempotent-replay'), 'false');
  assert.equal(await gateway.revenue(), PRICE);
  assert.deepEqual(await audit(gateway.db), []);
}

for (const [name, fault, status, code] of [...VERIFY_FAULTS, ['R24: a hang', 'hang', 502, 'PAYMENT_ERROR'] as const]) {
  test(`${name} at verify releases the payment without synthesis`, { skip }, async (t) => {
    const gateway = await startX402Gateway(t, chain);
    gateway.facilitator.faults.verify(fault);
    const { reply, paid } = await payFor(gateway, await wallet(chain.client, PRICE));
    t.equal(reply.status, status, reply.text);
    t.equal(reply.json.error.code, code);
    t.equal(gateway.upstream.requests.length, 0);
    t.ok(gateway.facilitator.calls.every(({ redirected }) => !redirected));
    if (status === 402) {
      t.equal(decodeHeader(reply.headers.get('payment-required')).error, 'invalid_exact_evm_signature');
      t.equal(reply.json.error.details.accepts[0].amount, String(PRICE));
    }
    await assertReleasedAndPayable(gateway, paid);
  });
}

/** A gateway with this facilitator before its own. */
async function startBehind(t: Test, url: string, env: Record<string, string> = {}) {
  const second = await testFacilitator(t, chain, { auth: 'a-token' });
  const list = JSON.stringify([{ url }, { url: second.url, headers: { authorization: 'Bearer a-token' } }]);
  const settings = { X402_FACILITATOR_URL: '', X402_FACILITATORS: list, LOG_LEVEL: 'warn', ...env };
  return { second, gateway: await startX402Gateway(t, chain, settings) };
}

for (const status of [undefined, 401, 403, 404, 429, 500]) {
  const state = status === undefined ? 'is down' : `answers ${status}`;
  test(`R24: if the first facilitator ${state} at verify, the second verifies and settles`, { skip }, async (t) => {
    const asked: unknown[] = [];
    const failing = await serve(t, (request, response) => {
      asked.push(request.url);
      request.resume().on('end', () => response.writeHead(status ?? 500).end('{}'));
    });
    const url = status === undefined ? 'http://127.0.0.1:1' : failing;
    const { gateway, second } = await startBehind(t, url);
    const payer = await wallet(chain.client, PRICE);
    const { reply } = await payFor(gateway, payer);
    t.equal(reply.status, 200, reply.text.slice(0, 300));
    t.strictSame(asked, status === undefined ? [] : ['/verify']);
    t.strictSame(
      second.calls.map(({ endpoint }) => endpoint),
      ['verify', 'settle'],
    );
    t.equal(await timesPaid(chain, payer), 1);
    const { host } = new URL(url);
    const [line] = gateway.log.filter(
      ({ msg }) =>
        msg ===
        'a facilitator failed to check a payment, and no money moved. The service asks the next facilitator, if there is one; check this one if it repeats',
    );
    t.strictSame([line?.facilitator, line?.traceId], [host, reply.headers.get('x-trace-id')]);
    const setting = `X402_FACILITATORS (${host})`;
    const refused = `speechgate_refused_credentials_total{setting="${setting}"} ${status === 401 || status === 403 ? 1 : 0}`;
    t.ok((await gateway.app.metrics.scrape()).includes(refused), refused);
    const alarms = gateway.log.filter((each) => each.setting === setting);
    t.equal(alarms.length, status === 401 || status === 403 ? 1 : 0);
    t.strictSame(await audit(gateway.db), []);
  });
}

test('R24: if the first facilitator is down, the second verifies and settles a deposit', { skip }, async (t) => {
  const { gateway, second } = await startBehind(t, 'http://127.0.0.1:1');
  mineSteadily(t, chain);
  const payer = await wallet(chain.client, BigInt(DEPOSIT));
  const { reply } = await payDeposit(gateway, payer);
  t.strictSame([reply.status, reply.json.balanceMicroUsd], [200, DEPOSIT]);
  t.strictSame(
    second.calls.map(({ endpoint }) => endpoint),
    ['verify', 'settle'],
  );
  t.equal(await timesPaid(chain, payer), 1);
  t.strictSame(await audit(gateway.db), []);
});

test('R23: if the first facilitator lacks gas at verify, the second verifies and settles', { skip }, async (t) => {
  const first = await testFacilitator(t, chain);
  const { gateway, second } = await startBehind(t, first.url);
  first.faults.verify(invalid('invalid_exact_evm_insufficient_balance'));
  const payer = await wallet(chain.client, PRICE);
  const { reply } = await payFor(gateway, payer);
  t.equal(reply.status, 200, reply.text.slice(0, 300));
  t.strictSame(
    second.calls.map(({ endpoint }) => endpoint),
    ['verify', 'settle'],
  );
  t.equal(await timesPaid(chain, payer), 1);
  const [line] = gateway.log.filter(({ msg }) =>
    msg.startsWith('the wallet of the facilitator in this line probably lacks gas, '),
  );
  t.equal(line?.facilitator, new URL(first.url).host);
});

test('R23: a payment that the first facilitator finds invalid is not shown to the second', { skip }, async (t) => {
  const first = await testFacilitator(t, chain);
  const { gateway, second } = await startBehind(t, first.url);
  first.faults.verify(invalid('invalid_exact_evm_signature'));
  const { reply } = await payFor(gateway, await wallet(chain.client, PRICE));
  t.equal(reply.status, 402);
  t.equal(second.calls.length, 0);
});

const UPSTREAM_FAULTS: [string, Mode, string][] = [
  ['answers 500', openAiError(500), 'TTS_UPSTREAM_ERROR'],
  ['answers garbage', garbage(), 'TTS_UPSTREAM_ERROR'],
  ['answers WAV (R56)', wav(), 'TTS_UPSTREAM_ERROR'],
  ['breaks off', resetInBody(), 'TTS_UPSTREAM_ERROR'],
  ['is overloaded', openAiError(503), 'TTS_UNAVAILABLE'],
  ['hangs', hangInBody(), 'TTS_UNAVAILABLE'],
];

for (const [name, mode, code] of UPSTREAM_FAULTS) {
  test(`nothing is settled when the upstream ${name}`, { skip }, async (t) => {
    const gateway = await startX402Gateway(t, chain, { SPEECH_TIMEOUT_MS: '1500' });
    gateway.upstream.mode = mode;
    const { reply, paid } = await payFor(gateway, await wallet(chain.client, PRICE));
    t.equal(reply.json.error.code, code);
    gateway.upstream.mode = mp3();
    await assertReleasedAndPayable(gateway, paid);
  });
}

test('an audio store failure before settle is 503 REPLAY_CACHE_UNAVAILABLE', { skip }, async (t) => {
  const blocked = join(tmpdir(), `speechgate-blocked-${process.pid}`);
  await writeFile(blocked, '');
  t.teardown(() => rm(blocked, { recursive: true, force: true }));
  const gateway = await startX402Gateway(t, chain, { AUDIO_STORE: `file:${blocked}/audio` });
  const { reply, paid } = await payFor(gateway, await wallet(chain.client, PRICE));
  t.equal(reply.status, 503);
  t.equal(reply.json.error.code, 'REPLAY_CACHE_UNAVAILABLE');
  await rm(blocked);
  await assertReleasedAndPayable(gateway, paid);
});

test('R21b: an unreachable chain is 502 PAYMENT_ERROR, without synthesis', { skip }, async (t) => {
  const node = await startTcpProxy(t, chain.rpcUrl);
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: node.url });
  node.cut();
  const { reply, paid } = await payFor(gateway, await wallet(chain.client, PRICE));
  t.equal(reply.status, 502);
  t.equal(reply.json.error.code, 'PAYMENT_ERROR');
  t.equal(gateway.upstream.requests.length, 0);
  node.restore();
  await assertReleasedAndPayable(gateway, paid);
});

test('R23: a payer without money is refused before synthesis', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, PRICE - 1n);
  const { reply } = await payFor(gateway, payer);
  t.equal(reply.status, 402);
  t.match(decodeHeader(reply.headers.get('payment-required')).error, /insufficient/);
  t.equal(gateway.upstream.requests.length, 0);
  t.equal(await timesPaid(chain, payer), 0);
});
