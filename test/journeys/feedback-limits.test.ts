import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { BUG, type Feedback, give, signedFeedback, submit } from '../support/feedback.ts';
import { startGateway } from '../support/gateway.ts';
import { runTurn } from '../support/reconcile.ts';
import { viemWallet } from '../support/wallet.ts';
import { gatewayWithClock, stored } from './feedback.ts';

const DAY = '24 hours';

test('5 per wallet in any 24 hours: of 10 tries at once 5 are stored, and the rest is told when to retry', async (t) => {
  const { gateway, clock } = await gatewayWithClock(t);
  const wallet = viemWallet();
  const early = await give(gateway, wallet, { message: 'the first', category: 'other' });
  assert.equal(early.status, 201);
  await clock.advance('1 hour');
  const feedback = (index: number): Feedback => ({ message: `number ${index}`, category: 'other' });
  const signed = await Promise.all(
    Array.from({ length: 10 }, (_, index) => signedFeedback(gateway, wallet, feedback(index))),
  );
  const replies = await Promise.all(signed.map((one) => submit(gateway, one)));
  assert.equal(replies.filter(({ status }) => status === 201).length, 4);
  const refused = replies.findIndex(({ status }) => status !== 201);
  for (const reply of replies.filter(({ status }) => status !== 201)) {
    assert.equal(reply.status, 429);
    assert.equal(reply.json.error.code, 'FEEDBACK_RATE_LIMITED');
    assert.equal(reply.headers.get('retry-after'), String(23 * 3600), 'until the first one is 24 hours old');
  }
  assert.equal((await give(gateway, viemWallet())).status, 201, 'another wallet is not concerned');

  assert.equal((await submit(gateway, signed[refused])).status, 429);
  await clock.advance('599.999999 seconds');
  assert.equal((await submit(gateway, signed[refused])).headers.get('retry-after'), String(23 * 3600 - 599));
  assert.equal((await stored(gateway)).length, 6);

  await clock.advance('22 hours 50 minutes');
  const later = await signedFeedback(gateway, wallet, feedback(11));
  const reply = await submit(gateway, later);
  assert.equal(reply.headers.get('retry-after'), '1', 'a microsecond before');
  await clock.advance('0.000001 seconds');
  assert.equal((await submit(gateway, later)).status, 201, 'a refusal leaves the challenge as it was');
  assert.equal(
    (await give(gateway, wallet, feedback(12))).status,
    429,
    'the window rolls: the next one waits for the second',
  );
  await clock.advance(DAY);
  assert.equal((await give(gateway, wallet, feedback(13))).status, 201);
});

test('a used challenge is told as such by a wallet that has used up its limit too', async (t) => {
  const gateway = await startGateway(t);
  const wallet = viemWallet();
  const first = await signedFeedback(gateway, wallet);
  assert.equal((await submit(gateway, first)).status, 201);
  for (let index = 0; index < 4; index++) assert.equal((await give(gateway, wallet)).status, 201);
  assert.equal((await give(gateway, wallet)).status, 429);
  assert.equal((await submit(gateway, first)).status, 409);
});

test('R48: both endpoints count in one bucket per address, apart from that of speech', async (t) => {
  const gateway = await startGateway(t, { RATE_LIMIT_MAX: '3' });
  const wallet = viemWallet();
  const good = await signedFeedback(gateway, wallet);
  assert.equal((await submit(gateway, good)).headers.get('x-ratelimit-remaining'), '1');
  assert.equal((await submit(gateway, good)).status, 409);
  for (const [path, json] of [
    ['/feedback', good],
    ['/feedback/challenge', { wallet: wallet.address, ...BUG }],
  ] as const) {
    const reply = await gateway.call(path, { method: 'POST', json });
    assert.equal(reply.status, 429);
    assert.equal(reply.json.error.code, 'RATE_LIMITED');
    assert.equal(reply.headers.get('x-ratelimit-scope'), 'feedback');
    assert.equal(reply.headers.get('x-ratelimit-policy'), '3;w=60');
  }
  const speech = await gateway.call('/tts?text=Hello');
  assert.equal(speech.status, 402);
  assert.equal(speech.headers.get('x-ratelimit-remaining'), '2');
  assert.equal(
    (await gateway.call('/feedback', { method: 'POST', json: {} })).status,
    400,
    'R7: the contract comes first',
  );
});

test('R47: without FEEDBACK_SECRET both endpoints answer 503 CONFIG_ERROR', async (t) => {
  const gateway = await startGateway(t, { FEEDBACK_SECRET: '' });
  const good = { wallet: viemWallet().address, ...BUG };
  for (const [path, json] of [
    ['/feedback/challenge', good],
    ['/feedback', { ...good, challenge: 'c', signature: 's' }],
  ] as const) {
    const reply = await gateway.call(path, { method: 'POST', json });
    assert.equal(reply.status, 503);
    assert.equal(reply.json.error.code, 'CONFIG_ERROR');
    assert.deepEqual(reply.json.error.details, { setting: 'FEEDBACK_SECRET' });
  }
});

test('all wallets together may send FEEDBACK_MAX_PER_HOUR within an hour: fresh ones are refused until the oldest is an hour old', async (t) => {
  const { gateway, clock } = await gatewayWithClock(t, { FEEDBACK_MAX_PER_HOUR: '3' });
  for (let count = 0; count < 3; count++) {
    assert.equal((await give(gateway, viemWallet())).status, 201);
    await clock.advance('10 minutes');
  }
  const refused = await give(gateway, viemWallet());
  assert.deepEqual([refused.status, refused.json.error.code], [429, 'FEEDBACK_RATE_LIMITED']);
  assert.equal(refused.headers.get('retry-after'), '1800');
  assert.deepEqual(refused.json.error.details, { limit: 3, windowSeconds: 3600, retryAfterSeconds: 1800 });
  assert.equal((await stored(gateway)).length, 3);
  await clock.advance('30 minutes');
  const fresh = await Promise.all(Array.from({ length: 3 }, () => signedFeedback(gateway, viemWallet())));
  const statuses = await Promise.all(fresh.map(async (signed) => (await submit(gateway, signed)).status));
  assert.deepEqual(statuses.sort(), [201, 429, 429], 'the limit is exact when several come at once');
});

test('feedback is deleted when FEEDBACK_RETENTION_DAYS have passed, never what is still to be mailed', async (t) => {
  const gateway = await startGateway(t, { FEEDBACK_RETENTION_DAYS: '30' });
  const ids: string[] = [];
  for (let count = 0; count < 4; count++) ids.push((await give(gateway, viemWallet())).json.feedbackId);
  const [old, mailed, unmailed, young] = ids as [string, string, string, string];
  await sql`update feedback set received_at = now() - interval '30 days 1 second' where id <> ${young}`.execute(
    gateway.db,
  );
  await sql`update feedback set received_at = now() - interval '29 days 23 hours' where id = ${young}`.execute(
    gateway.db,
  );
  await sql`update feedback set notification = 'queued' where id in (${mailed}, ${unmailed})`.execute(gateway.db);
  await sql`update feedback set mailed_at = now() where id = ${mailed}`.execute(gateway.db);
  assert.equal((await runTurn(gateway, 'old_feedback')).count, 2);
  assert.deepEqual((await stored(gateway)).map(({ id }) => id).sort(), [unmailed, young].sort());
  assert.ok(!(await stored(gateway)).some(({ id }) => id === old));
});
