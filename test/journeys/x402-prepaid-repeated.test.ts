import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sql } from 'kysely';
import { test } from 'tap';
import { pauseFlows } from '../../src/operators/pauses.ts';
import type { Config } from '../../src/settings/config.ts';
import {
  assertOffered,
  BARE,
  CHARGED,
  concluded,
  detailsOf,
  endedLongerAgo,
  FUNDS,
  follow,
  GET,
  loseAnswer,
  PENDING,
  PRICE,
  RESTORED,
  SECRET,
  sendUnread,
  startWithFunds,
} from '../support/lost-answer.ts';
import {
  depositor,
  HELLO,
  moneyOf,
  startPrepaidGateway,
  TTS,
  withCredential,
  withHeaders,
} from '../support/prepaid.ts';
import { recordStatements } from '../support/recorded-statements.ts';
import { Drip, openAiError, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

test('R60: only the identical request is told of the first', async (t) => {
  const { gateway, sign, wallet } = await startWithFunds(t);
  const nonce = 'the-same-one';
  const call = await sign(TTS, HELLO, { nonce });
  await loseAnswer(gateway.url, TTS, call);
  await assertOffered(gateway, call, silentMp3(1000));
  const shouted = `0x${String(call.headers?.['x-x402-signature']).slice(2).toUpperCase()}`;
  assert.ok(detailsOf(await gateway.call(TTS, withHeaders(call, { 'x-x402-signature': shouted }))).audio);
  for (const [path, other] of [
    [TTS, await sign(TTS, HELLO, { nonce, max: 999_999n })],
    [TTS, await sign(TTS, { method: 'POST', json: { text: 'Other words' } }, { nonce })],
    [GET, await sign(GET, {}, { nonce })],
  ] as const) {
    const refused = await gateway.call(path, other);
    assert.deepEqual([refused.status, detailsOf(refused)], [409, BARE]);
  }
  const stranger = await depositor(gateway, FUNDS);
  const foreign = await withCredential(stranger.wallet, gateway.domain, TTS, HELLO, { nonce });
  assert.equal((await gateway.call(TTS, withHeaders(foreign, { 'x-x402-account': wallet.address }))).status, 401);
  assert.equal((await gateway.call(TTS, foreign)).status, 200, "another wallet's nonce is another one");
});

test('R60: the state of a request whose synthesis fails goes from pending to restored', async (t) => {
  const { gateway, sign } = await startWithFunds(t);
  const drip = new Drip();
  gateway.upstream.mode = drip.mode;
  const call = await sign(TTS, HELLO);
  const first = gateway.call(TTS, call);
  await drip.opened;
  const pending = await gateway.call(TTS, call);
  assert.deepEqual(detailsOf(pending), PENDING);
  assert.deepEqual(moneyOf(pending), ['0', String(FUNDS - BigInt(PRICE))]);
  drip.end();
  assert.equal((await first).status, 502);
  assert.deepEqual(detailsOf(await concluded(gateway, call)), RESTORED);
  gateway.upstream.mode = openAiError(500);
  const failed = await sign(TTS, HELLO);
  assert.equal((await gateway.call(TTS, failed)).status, 502);
  const restored = await gateway.call(TTS, failed);
  assert.deepEqual(detailsOf(restored), RESTORED);
  assert.match(restored.json.error.message, /new nonce/);
});

test('R60: the identical request is told so after its expiry, and an unspent nonce is refused as ever', async (t) => {
  const { gateway, sign } = await startWithFunds(t);
  const expiry = BigInt(Math.floor(Date.now() / 1000) + 2);
  const [spent, unspent] = [await sign(TTS, HELLO, { expiry }), await sign(TTS, HELLO, { expiry })];
  await loseAnswer(gateway.url, TTS, spent);
  await until(() => Date.now() / 1000 > Number(expiry));
  const again = await concluded(gateway, spent);
  assert.equal(detailsOf(again).state, 'charged');
  assert.equal((await follow(gateway.url, detailsOf(again).audio)).status, 200);
  const refused = await gateway.call(TTS, unspent);
  assert.deepEqual([refused.status, detailsOf(refused).field], [400, 'x-x402-expiry']);
  const forged = withHeaders(spent, { 'x-x402-max-amount': '7' });
  assert.equal((await gateway.call(TTS, forged)).status, 400, 'its signature does not verify');
});

test('R60: another process of the deployment, and a later one, offer the audio too', async (t) => {
  const audioStore = await mkdtemp(join(tmpdir(), 'speechgate-lost-'));
  t.teardown(() => rm(audioStore, { recursive: true, force: true }));
  const env = { JOB_SIGNING_SECRET: SECRET, AUDIO_STORE: `file:${audioStore}` };
  const { gateway, sign } = await startWithFunds(t, env);
  const call = await sign(TTS, HELLO);
  await loseAnswer(gateway.url, TTS, call);
  const beside = await startPrepaidGateway(t, env, { databaseUrl: gateway.databaseUrl });
  await until(async () => detailsOf(await beside.call(TTS, call)).audio !== undefined);
  await gateway.app.close();
  await assertOffered(beside, call, silentMp3(1000));
  const later = await startPrepaidGateway(t, env, { databaseUrl: gateway.databaseUrl });
  await assertOffered(later, call, silentMp3(1000));
});

test('R60: a quote that has expired, and a pause, keep nobody from what was charged', async (t) => {
  const { gateway, sign } = await startWithFunds(t, { QUOTE_TTL_SECONDS: '1' });
  const text = 'Hello world';
  const asked = { textLength: text.length, textSha256: createHash('sha256').update(text).digest('hex') };
  const quote = await gateway.call(`${TTS}/quote`, { method: 'POST', json: asked });
  const call = await sign(TTS, { method: 'POST', json: { quoteToken: quote.json.quoteToken, text } });
  await loseAnswer(gateway.url, TTS, call);
  await until(() => Date.now() > Date.parse(quote.json.expiresAt));
  await assertOffered(gateway, call, silentMp3(1000));
  const unspent = await sign(TTS, { method: 'POST', json: { quoteToken: quote.json.quoteToken, text } });
  assert.equal((await gateway.call(TTS, unspent)).json.error.code, 'QUOTE_EXPIRED');
  await pauseFlows(gateway.db, ['prepaid'], { operator: 'me', reason: 'test' });
  await gateway.app.pauses.read();
  assert.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 503);
  assert.ok(detailsOf(await concluded(gateway, call)).audio);
});

test('R60: audio that is stored while a repetition is looked up is offered to that one', async (t) => {
  const { gateway, sign } = await startWithFunds(t);
  const statements = recordStatements(t);
  const call = await sign(TTS, HELLO);
  const silent = await sendUnread(gateway.url, TTS, call);
  await once(silent, 'readable');
  const lookUp = statements.holdBackAnswer(/join prepaid_nonce spent/);
  const repeated = gateway.call(TTS, call);
  await lookUp.held;
  silent.resetAndDestroy();
  await until(async () => /lost_answers_total\{outcome="kept"\} 1$/m.test(await gateway.app.metrics.scrape()));
  lookUp.letGo();
  const { audio, ...details } = detailsOf(await repeated);
  assert.deepEqual(details, CHARGED);
  assert.ok(audio);
});

test('R60: a wallet that may have no more at once is told what became of the request that it repeats', async (t) => {
  const adjust = (config: Config) => ({ ...config, unpaidWork: { ...config.unpaidWork, maxRunning: 1 } });
  const { gateway, sign } = await startWithFunds(t, {}, { adjust });
  const drip = new Drip();
  gateway.upstream.mode = drip.mode;
  const call = await sign(TTS, HELLO);
  const first = gateway.call(TTS, call);
  await drip.opened;
  assert.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 429);
  const again = await gateway.call(TTS, call);
  assert.deepEqual([again.status, detailsOf(again)], [409, PENDING]);
  drip.end();
  assert.equal((await first).status, 502);
});

test('R60: another process does not tell that an answer has arrived as long as it may turn out to be lost', async (t) => {
  const audioStore = await mkdtemp(join(tmpdir(), 'speechgate-lost-'));
  t.teardown(() => rm(audioStore, { recursive: true, force: true }));
  const env = { JOB_SIGNING_SECRET: SECRET, AUDIO_STORE: `file:${audioStore}` };
  const { gateway, sign } = await startWithFunds(t, env);
  const beside = await startPrepaidGateway(t, env, { databaseUrl: gateway.databaseUrl });
  const call = await sign(TTS, HELLO);
  const silent = await sendUnread(gateway.url, TTS, call);
  await once(silent, 'readable');
  await until(async () => {
    const { rows } = await sql`
      select from transfer join gateway_process process on process.id = process_id and transfer.id < finished_below
      where not transfer.id = any(unfinished)`.execute(gateway.db);
    return rows.length === 1;
  });
  assert.deepEqual(detailsOf(await beside.call(TTS, call)), PENDING, 'it is followed');
  const storing = recordStatements(t).holdBack(/update lost_answer set stored_at/);
  silent.resetAndDestroy();
  await storing.held;
  await endedLongerAgo(gateway, 41);
  const other = await startPrepaidGateway(t, env, { databaseUrl: gateway.databaseUrl });
  assert.deepEqual(detailsOf(await other.call(TTS, call)), PENDING, 'it is being stored');
  storing.letGo();
  await assertOffered(beside, call, silentMp3(1000));
  const arrived = await sign(TTS, HELLO);
  assert.equal((await gateway.call(TTS, arrived)).status, 200);
  await endedLongerAgo(gateway, 41);
  assert.deepEqual(detailsOf(await concluded(other, arrived)), CHARGED);
});
