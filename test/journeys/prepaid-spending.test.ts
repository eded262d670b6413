import { createHash, randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { t, test } from 'tap';
import { findWallet } from '../../src/ledger/accounts.ts';
import { audit } from '../../src/ledger/audit.ts';
import type { Call } from '../support/gateway.ts';
import { balanceHeaders, fundedWallet, noncesOf, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { silentMp3 } from '../support/silent-audio.ts';
import {
  ControlledStream,
  cutChunked,
  empty,
  hangInBody,
  type Mode,
  mp3,
  openAiError,
  resetBeforeHeaders,
  tooManyRequests,
  wav,
} from '../support/stub-upstream.ts';
import { unguarded } from '../support/unguarded.ts';
import { until } from '../support/until.ts';
import { HELLO, PRICE } from '../support/x402.ts';

/** Of the tests that need no settings of their own. */
const gateway = await startPrepaidGateway(t, { LOG_LEVEL: 'warn' });

test('a prepaid request charges its exact price and returns the balance', async (t) => {
  const { sign, balance } = await fundedWallet(gateway, 100_000n);
  const spoken = await gateway.call(TTS, await sign(TTS, HELLO));
  t.strictSame([spoken.status, spoken.headers.get('content-type')], [200, 'audio/mpeg']);
  t.strictSame(balanceHeaders(spoken), ['198', '99802']);
  t.equal(spoken.headers.get('cache-control'), 'private, no-store');
  for (const name of ['payment-response', 'x-payment-identifier', 'x-ratelimit-limit'])
    t.equal(spoken.headers.get(name), null, name);
  const hd: Call = { method: 'POST', json: { text: ' Hello world ', model: 'provider-a/tts-1-hd' } };
  t.strictSame(balanceHeaders(await gateway.call(TTS, await sign(TTS, hd))), ['396', '99406']);
  t.equal(await balance(), 99_406n);
  t.strictSame(await audit(gateway.db), []);
});

test('R32: a balance or maximum below the price is 402 and spends no nonce', async (t) => {
  const { sign, balance } = await fundedWallet(gateway, 500n);
  const before = await noncesOf(gateway);
  const nonce = randomUUID();
  const tooLow = await gateway.call(TTS, await sign(TTS, HELLO, { nonce, max: PRICE - 1n }));
  t.strictSame([tooLow.status, tooLow.json.error.details.reason], [402, 'over_max_amount']);
  const dear: Call = { method: 'POST', json: { text: 'a'.repeat(28) } };
  const tooDear = await gateway.call(TTS, await sign(TTS, dear, { nonce }));
  t.equal(tooDear.status, 402);
  t.strictSame(tooDear.json.error.details, {
    reason: 'insufficient_funds',
    priceMicroUsd: 504,
    balanceMicroUsd: 500,
    depositEndpoint: 'http://speechgate.test/x402/deposit',
    payment: { state: 'not_charged', amountMicroUsd: 0 },
  });
  for (const reply of [tooLow, tooDear]) {
    t.equal(reply.json.error.code, 'PAYMENT_REQUIRED');
    t.strictSame(balanceHeaders(reply), ['0', '500']);
    t.strictSame([reply.headers.get('payment-required'), reply.headers.get('cache-control')], [null, 'no-store']);
  }
  t.strictSame(await noncesOf(gateway), before);
  const exact = await sign(TTS, HELLO, { nonce, max: PRICE });
  t.equal((await gateway.call(TTS, exact)).status, 200);
  t.equal((await gateway.call(TTS, await sign(TTS, HELLO, { max: 2n ** 256n - 1n }))).status, 200);
  t.equal(await balance(), 500n - 2n * PRICE);
  const spent = await gateway.call(TTS, exact);
  t.strictSame([spent.status, spent.json.error.code], [409, 'PREPAID_NONCE_REPLAYED'], 'though 104 are too little');
  const reused = await gateway.call(TTS, await sign(TTS, dear, { nonce, max: 1n }));
  t.equal(reused.status, 409, 'a spent nonce wins over everything that the request asks for');
  t.strictSame(balanceHeaders(reused), ['0', '104']);
  t.strictSame(await audit(gateway.db), []);
});

test('R12, R32: a wallet that never deposited is 402 and gets no account', async (t) => {
  const { sign, wallet } = await fundedWallet(gateway, 0n);
  const reply = await gateway.call(TTS, await sign(TTS, HELLO));
  t.strictSame([reply.status, reply.json.error.details.reason], [402, 'never_deposited']);
  t.strictSame(balanceHeaders(reply), ['0', '0']);
  t.equal(await findWallet(gateway.db, wallet.address.toLowerCase()), undefined);
});

test('of 50 equal requests at once, one is charged and 49 are PREPAID_NONCE_REPLAYED', async (t) => {
  for (const funds of [PRICE, 100n * PRICE]) {
    const { sign, balance } = await fundedWallet(gateway, funds);
    const call = await sign(TTS, HELLO);
    const before = gateway.upstream.requests.length;
    const replies = await Promise.all(Array.from({ length: 50 }, () => gateway.call(TTS, call)));
    const codes = replies.map((reply) => (reply.status === 200 ? 200 : reply.json.error.code)).sort();
    t.strictSame(codes, [200, ...Array(49).fill('PREPAID_NONCE_REPLAYED')], `with ${funds} micro-USD`);
    t.equal(gateway.upstream.requests.length - before, 1);
    t.equal(await balance(), funds - PRICE);
  }
  t.strictSame(await audit(gateway.db), []);
});

const FAULTS: [string, Mode, number, string][] = [
  ['500', openAiError(500), 502, 'TTS_UPSTREAM_ERROR'],
  ['429', tooManyRequests('7'), 503, 'TTS_UNAVAILABLE'],
  ['nothing', empty(), 502, 'TTS_UPSTREAM_ERROR'],
  ['a reset', resetBeforeHeaders(), 503, 'TTS_UNAVAILABLE'],
  ['a cut body', cutChunked(), 502, 'TTS_UPSTREAM_ERROR'],
  ['silence within the body', hangInBody(), 503, 'TTS_UNAVAILABLE'],
  ['WAV, which is no answer here (R56)', wav(), 502, 'TTS_UPSTREAM_ERROR'],
];

test('R33: each upstream fault restores the debit exactly, and the nonce stays spent', async (t) => {
  const gateway = await startPrepaidGateway(t, { SPEECH_TIMEOUT_MS: '500' });
  const { sign, balance } = await fundedWallet(gateway, 1000n);
  for (const [what, mode, status, code] of FAULTS) {
    gateway.upstream.mode = mode;
    const call = await sign(TTS, HELLO);
    const failed = await gateway.call(TTS, call);
    t.strictSame([failed.status, failed.json.error.code], [status, code], what);
    t.strictSame(balanceHeaders(failed), ['0', '1000'], what);
    t.equal(await balance(), 1000n, what);
    const again = await gateway.call(TTS, call);
    t.strictSame([again.status, again.json.error.code], [409, 'PREPAID_NONCE_REPLAYED'], what);
    t.strictSame(balanceHeaders(again), ['0', '1000'], what);
  }
  t.strictSame(await audit(gateway.db), []);
});

test('a response whose hold was voided meanwhile is delivered, not charged, and logged', async (t) => {
  const { sign, balance } = await fundedWallet(gateway, 1000n);
  const drip = new ControlledStream();
  gateway.upstream.mode = drip.mode;
  const reply = gateway.call(TTS, await sign(TTS, HELLO));
  await drip.opened;
  await gateway.db
    .updateTable('transfer')
    .set({ lease_until: new Date(0) })
    .where('state', '=', 'pending')
    .execute();
  await gateway.app.reconcilers.turn();
  t.equal(await balance(), 1000n);
  drip.write(silentMp3(500));
  drip.end();
  t.equal((await reply).status, 200);
  await until(() => gateway.log.some(({ msg }) => /delivered response is probably not charged: its hold/.test(msg)));
  t.equal(await balance(), 1000n);
  t.strictSame(await audit(gateway.db), []);
});

test('R54: a prepaid balance may spend a quote repeatedly', async (t) => {
  gateway.upstream.mode = mp3();
  const { sign } = await fundedWallet(gateway, 1000n);
  const textSha256 = createHash('sha256').update('Hello world').digest('hex');
  const quote = await gateway.call('/x402/tts/quote', { method: 'POST', json: { textLength: 11, textSha256 } });
  const { quoteToken } = quote.json;
  const spend = async (body: object) =>
    gateway.call(TTS, await sign(TTS, { method: 'POST', json: { quoteToken, ...body } }));
  for (const left of [802, 604]) {
    const reply = await spend({ text: 'Hello world' });
    t.strictSame([reply.status, ...balanceHeaders(reply)], [200, '198', String(left)]);
  }
  t.equal((await spend({})).json.error.code, 'INVALID_REQUEST');
  t.equal((await spend({ text: 'Hello wurld' })).json.error.code, 'QUOTE_BODY_MISMATCH');
});

test('R34: a spent nonce is kept for at least 24 hours, then deleted', async (t) => {
  const gateway = await startPrepaidGateway(t, { RECONCILE_INTERVAL_MS: '100' });
  const { sign } = await fundedWallet(gateway, 1000n);
  for (const nonce of ['old', 'kept']) await gateway.call(TTS, await sign(TTS, HELLO, { nonce }));
  const age = (nonce: string, interval: string) =>
    unguarded(gateway.db, async (db) => {
      await sql`update prepaid_nonce set spent_at = spent_at - ${interval}::interval where nonce = ${nonce}`.execute(
        db,
      );
      await sql`
        update transfer set created_at = created_at - ${interval}::interval, ended_at = ended_at - ${interval}::interval
        where reference = ${nonce} or kind = 'deposit'`.execute(db);
    });
  await age('kept', '24 hours');
  await age('old', '26 hours');
  await until(async () => (await noncesOf(gateway)).length === 1);
  t.strictSame(await noncesOf(gateway), ['kept']);
  t.strictSame(await audit(gateway.db), []);
});
