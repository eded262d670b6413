import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, t, test } from 'tap';
import { testDatabase } from '../support/database.ts';
import { controlDatabaseClock } from '../support/database-clock.ts';
import { BUG, type Feedback, give, signedFeedback, submit } from '../support/feedback.ts';
import { BASE_URL, type Gateway, startGateway } from '../support/gateway.ts';
import { runTurn } from '../support/reconcile.ts';
import { plainWallet, viemWallet } from '../support/wallet.ts';

/** A gateway whose database's clock the test moves. */
async function gatewayWithClock(t: Test, env: Record<string, string> = {}) {
  const { url: databaseUrl } = await testDatabase(t);
  const clock = await controlDatabaseClock(databaseUrl);
  t.teardown(() => clock.close());
  return { clock, gateway: await startGateway(t, env, { databaseUrl }) };
}

/** Of the tests that need no settings of their own. */
const gateway = await startGateway(t);

const stored = ({ db }: Gateway) => db.selectFrom('feedback').selectAll().orderBy('received_at').execute();
const storedOf = ({ address }: { readonly address: string }) =>
  gateway.db.selectFrom('feedback').selectAll().where('wallet', '=', address.toLowerCase()).execute();

test('feedback signed with viem or with an independent library is stored', async (t) => {
  for (const wallet of [viemWallet(), plainWallet()]) {
    const reply = await give(gateway, wallet);
    t.equal(reply.status, 201, reply.text);
    t.strictSame([reply.json.notification, reply.headers.get('x-ratelimit-scope')], ['not_configured', 'feedback']);
    const [row, ...more] = await storedOf(wallet);
    const { id, category, message, details, trace_id, received_at, mailed_at } = row ?? assert.fail();
    t.strictSame({ category, message, details }, BUG);
    t.strictSame([id, trace_id], [reply.json.feedbackId, reply.headers.get('x-trace-id')]);
    t.strictSame([received_at.toISOString(), mailed_at, more], [reply.json.receivedAt, null, []]);
  }
});

test('R38, R53: the digest is SHA-256 of canonical JSON with a lower-case wallet', async (t) => {
  const { address } = viemWallet();
  const wallet = address.toLowerCase();
  const cases: [Record<string, unknown>, string][] = [
    [{ message: ' "1" é\n', category: 'other' }, `{"category":"other","message":" \\"1\\" é\\n","wallet":"${wallet}"}`],
    [
      { message: 'm', category: 'pricing', details: {} },
      `{"category":"pricing","details":{},"message":"m","wallet":"${wallet}"}`,
    ],
    [
      {
        message: 'm',
        category: 'bug',
        details: { traceId: 't', lastHttpStatus: 402, agent: 'a', unknown: [1] },
        more: 1,
      },
      `{"category":"bug","details":{"agent":"a","lastHttpStatus":402,"traceId":"t"},"message":"m","wallet":"${wallet}"}`,
    ],
  ];
  for (const [feedback, canonical] of cases) {
    for (const spelling of [address, wallet, `0x${wallet.slice(2).toUpperCase()}`]) {
      const reply = await gateway.call('/feedback/challenge', {
        method: 'POST',
        json: { wallet: spelling, ...feedback },
      });
      t.equal(reply.status, 200, reply.text);
      t.equal(reply.json.payloadSha256, createHash('sha256').update(canonical).digest('hex'));
      t.equal(reply.json.wallet, wallet);
    }
  }
});

test('the signing message names service, wallet, category, digest, nonce and times', async (t) => {
  const gateway = await startGateway(t, { SERVICE_NAME: 'My voices' });
  const { address } = viemWallet();
  const call = { method: 'POST', json: { wallet: address, ...BUG } };
  const { json } = await gateway.call('/feedback/challenge', call);
  const lines = json.signingMessage.split('\n');
  for (const line of [
    `Service: My voices (${BASE_URL})`,
    `Wallet: ${address.toLowerCase()}`,
    'Category: bug',
    `Feedback SHA-256: ${json.payloadSha256}`,
    `Nonce: ${json.nonce}`,
    `Issued: ${json.issuedAt}`,
    `Expires: ${json.expiresAt}`,
  ]) {
    t.ok(lines.includes(line), line);
  }
  t.match(json.signingMessage, /^[\x20-\x7e\n]+$/);
  t.equal(Date.parse(json.expiresAt) - Date.parse(json.issuedAt), 600_000, 'the default is 600 s');
  t.not((await gateway.call('/feedback/challenge', call)).json.nonce, json.nonce);
  t.strictSame(await stored(gateway), []);
});

test('changed feedback gets the code of its fault, and the challenge stays usable', async (t) => {
  const wallet = viemWallet();
  const other = viemWallet();
  const good = await signedFeedback(gateway, wallet);
  const foreign = await signedFeedback(await startGateway(t, { FEEDBACK_SECRET: 'x'.repeat(32) }), wallet);
  const another = await signedFeedback(gateway, wallet);
  const { signature, challenge } = good;
  const [header, , mac] = challenge.split('.');
  const forged = Buffer.from(JSON.stringify({ aud: 'feedback', wallet: other.address.toLowerCase() })).toString(
    'base64url',
  );

  const cases: [string, object, number, string][] = [
    ['another wallet', { wallet: other.address }, 400, 'FEEDBACK_PAYLOAD_MISMATCH'],
    ['a space behind the message', { message: `${BUG.message} ` }, 400, 'FEEDBACK_PAYLOAD_MISMATCH'],
    ['another category', { category: 'pricing' }, 400, 'FEEDBACK_PAYLOAD_MISMATCH'],
    ['a detail more', { details: { ...BUG.details, traceId: 't' } }, 400, 'FEEDBACK_PAYLOAD_MISMATCH'],
    ['no details', { details: undefined }, 400, 'FEEDBACK_PAYLOAD_MISMATCH'],
    ['empty details', { details: {} }, 400, 'FEEDBACK_PAYLOAD_MISMATCH'],
    ['a challenge that is none', { challenge: 'nonsense' }, 400, 'FEEDBACK_CHALLENGE_INVALID'],
    ['a challenge that was changed', { challenge: `${header}.${forged}.${mac}` }, 400, 'FEEDBACK_CHALLENGE_INVALID'],
    ['a challenge of another service', { challenge: foreign.challenge }, 400, 'FEEDBACK_CHALLENGE_INVALID'],
    ['the signature of another challenge', { signature: another.signature }, 401, 'FEEDBACK_SIGNATURE_INVALID'],
    ['another signer', { signature: await other.sign('hello') }, 401, 'FEEDBACK_SIGNATURE_INVALID'],
    ['a compact signature', { signature: signature.slice(0, -2) }, 401, 'FEEDBACK_SIGNATURE_INVALID'],
    ['a signature that is empty', { signature: '' }, 401, 'FEEDBACK_SIGNATURE_INVALID'],
  ];
  for (const [name, mutation, status, code] of cases) {
    const reply = await submit(gateway, { ...good, ...mutation });
    t.equal(reply.status, status, `${name}: ${reply.text}`);
    t.equal(reply.json.error.code, code, name);
    if (name === 'a compact signature') t.match(reply.json.error.message, /^signature has 64 bytes, .+ 65 bytes/);
  }
  t.strictSame(await storedOf(wallet), []);

  const details = Object.fromEntries(Object.entries(BUG.details ?? {}).reverse());
  const same = { ...good, details: { ...details, unknown: 1 }, wallet: wallet.address.toLowerCase(), unknown: 2 };
  t.equal(
    (await submit(gateway, same)).status,
    201,
    'the order of details, letter case and unknown members do not matter',
  );
  const again = await submit(gateway, good);
  t.strictSame([again.status, again.json.error.code], [409, 'FEEDBACK_CHALLENGE_REPLAYED']);
  const changed = await submit(gateway, { ...good, signature: another.signature });
  t.equal(changed.json.error.code, 'FEEDBACK_SIGNATURE_INVALID', 'that it was used is told to the signer only');
});

test('of 20 identical submissions at once, one is stored', async (t) => {
  const wallet = plainWallet();
  const good = await signedFeedback(gateway, wallet);
  const replies = await Promise.all(Array.from({ length: 20 }, () => submit(gateway, good)));
  t.equal(replies.filter(({ status }) => status === 201).length, 1);
  const refused = replies.filter(({ status }) => status !== 201);
  for (const { json } of refused) t.equal(json.error.code, 'FEEDBACK_CHALLENGE_REPLAYED');
  t.equal((await storedOf(wallet)).length, 1);
});

test("a challenge expires by the database's clock, and a used one stays used", async (t) => {
  const { gateway, clock } = await gatewayWithClock(t, { FEEDBACK_CHALLENGE_TTL_SECONDS: '900' });
  const [first, second] = [viemWallet(), viemWallet()];
  const used = await signedFeedback(gateway, first);
  const late = await signedFeedback(gateway, second);
  await clock.advance('899.999999 seconds');
  t.equal((await submit(gateway, used)).status, 201);
  await clock.advance('0.000001 seconds');
  const reply = await submit(gateway, late);
  t.strictSame([reply.status, reply.json.error.code], [400, 'FEEDBACK_CHALLENGE_EXPIRED']);
  t.equal(reply.json.error.details.expiresAt, '2030-01-01T00:15:00.000Z');
  t.equal((await submit(gateway, used)).json.error.code, 'FEEDBACK_CHALLENGE_REPLAYED');
  t.equal((await stored(gateway)).length, 1);
});

test('a contract violation names its field and rule', async (t) => {
  const good = { wallet: viemWallet().address, ...BUG };
  const cases: [string, object, string, string][] = [
    ['no wallet', { wallet: undefined }, 'wallet', 'required'],
    ['a wallet with 0X', { wallet: `0X${good.wallet.slice(2)}` }, 'wallet', 'pattern'],
    ['a message of white space', { message: ' \n\t ' }, 'message', 'minLength'],
    ['a message of 4001 characters', { message: 'x'.repeat(4001) }, 'message', 'maxLength'],
    ['a message with a lone surrogate', { message: 'a\ud800b' }, 'message', 'wellFormed'],
    ['an unknown category', { category: 'praise' }, 'category', 'enum'],
    ['details that are null', { details: null }, 'details', 'type'],
    ['a detail that is too long', { details: { errorCode: 'x'.repeat(101) } }, 'details.errorCode', 'maxLength'],
    ['a status in quotes', { details: { lastHttpStatus: '402' } }, 'details.lastHttpStatus', 'type'],
  ];
  for (const path of ['/feedback/challenge', '/feedback']) {
    for (const [name, change, field, rule] of cases) {
      const json = { ...good, challenge: 'c', signature: 's', ...change };
      const reply = await gateway.call(path, { method: 'POST', json });
      const { code, details } = reply.json.error;
      t.strictSame([reply.status, code], [400, 'INVALID_REQUEST'], `${path}, ${name}`);
      t.strictSame([details.field, details.rule], [field, rule], name);
    }
    const post = async (body: string | Buffer, type = 'application/json') => {
      const reply = await gateway.call(path, { method: 'POST', body, headers: { 'content-type': type } });
      return [reply.status, reply.json.error.code];
    };
    const padded = (bytes: number) => `{"wallet":5,"pad":"${'x'.repeat(bytes - 21)}"}`;
    t.strictSame(await post('{'), [400, 'INVALID_JSON']);
    t.strictSame(await post(Buffer.from('{"message":"\xff"}', 'latin1')), [400, 'INVALID_JSON']);
    t.strictSame(await post(padded(32_768)), [400, 'INVALID_REQUEST'], 'R4: 32 KiB are read');
    t.strictSame(await post(`${padded(32_768)} `), [413, 'REQUEST_TOO_LARGE']);
    t.strictSame(await post('{}', 'text/plain'), [415, 'UNSUPPORTED_CONTENT_TYPE']);
  }
});

test('R1: a message may have 4000 UTF-16 code units plus outer white space', async (t) => {
  const message = `  ${'😀'.repeat(2000)}\r\n `;
  const wallet = viemWallet();
  t.equal((await give(gateway, wallet, { message, category: 'other' })).status, 201);
  t.equal((await storedOf(wallet))[0]?.message, message);
});

test("GET / lists the specification's endpoints only, and the guide explains signing", async (t) => {
  t.strictSame((await gateway.call('/')).json.endpoints, [
    'GET /openapi.json',
    'GET /.well-known/x402-service-metadata',
    'GET /docs',
    'POST /feedback/challenge',
    'POST /feedback',
    'POST /tts',
    'GET /tts',
    'POST /x402/tts/quote',
    'POST /x402/tts',
    'GET /x402/tts',
    'POST /x402/deposit',
    'GET /x402/accounts/:address',
    'GET /tts/models',
    'GET /tts/voices',
    'GET /top-up',
    'POST /top-up',
    'GET /top-up/status',
    'GET /tts/jobs/:jobId',
    'GET /tts/jobs/:jobId/audio',
    'GET /credits/:accountId',
  ]);
  const { agentGuide } = (await gateway.call('/docs')).json;
  t.match(agentGuide.feedback.join('\n'), /personal_sign/);
});

const DAY = '24 hours';

test('a wallet may send 5 messages in 24 hours and then gets Retry-After', async (t) => {
  const { gateway, clock } = await gatewayWithClock(t);
  const wallet = viemWallet();
  t.equal((await give(gateway, wallet, { message: 'the first', category: 'other' })).status, 201);
  await clock.advance('1 hour');
  const feedback = (index: number): Feedback => ({ message: `number ${index}`, category: 'other' });
  const signed = await Promise.all(
    Array.from({ length: 10 }, (_, index) => signedFeedback(gateway, wallet, feedback(index))),
  );
  const replies = await Promise.all(signed.map((one) => submit(gateway, one)));
  t.equal(replies.filter(({ status }) => status === 201).length, 4);
  const refused = replies.findIndex(({ status }) => status !== 201);
  for (const reply of replies.filter(({ status }) => status !== 201)) {
    t.strictSame([reply.status, reply.json.error.code], [429, 'FEEDBACK_RATE_LIMITED']);
    t.equal(reply.headers.get('retry-after'), String(23 * 3600), 'until the first one is 24 hours old');
  }
  t.equal((await give(gateway, viemWallet())).status, 201, 'another wallet is not concerned');
  t.equal((await submit(gateway, signed[refused])).status, 429);
  await clock.advance('599.999999 seconds');
  t.equal((await submit(gateway, signed[refused])).headers.get('retry-after'), String(23 * 3600 - 599));
  t.equal((await stored(gateway)).length, 6);
  await clock.advance('22 hours 50 minutes');
  const later = await signedFeedback(gateway, wallet, feedback(11));
  const reply = await submit(gateway, later);
  t.equal(reply.headers.get('retry-after'), '1', 'a microsecond before');
  await clock.advance('0.000001 seconds');
  t.equal((await submit(gateway, later)).status, 201, 'a refusal leaves the challenge as it was');
  t.equal(
    (await give(gateway, wallet, feedback(12))).status,
    429,
    'the window rolls: the next one waits for the second',
  );
  await clock.advance(DAY);
  t.equal((await give(gateway, wallet, feedback(13))).status, 201);
});

test('a used challenge is 409 even when the wallet has reached its limit', async (t) => {
  const wallet = viemWallet();
  const first = await signedFeedback(gateway, wallet);
  t.equal((await submit(gateway, first)).status, 201);
  for (let index = 0; index < 4; index++) t.equal((await give(gateway, wallet)).status, 201);
  t.strictSame([(await give(gateway, wallet)).status, (await submit(gateway, first)).status], [429, 409]);
});

test('R48: both feedback endpoints share a bucket per address, apart from speech', async (t) => {
  const gateway = await startGateway(t, { RATE_LIMIT_MAX: '3' });
  const wallet = viemWallet();
  const good = await signedFeedback(gateway, wallet);
  t.equal((await submit(gateway, good)).headers.get('x-ratelimit-remaining'), '1');
  t.equal((await submit(gateway, good)).status, 409);
  for (const [path, json] of [
    ['/feedback', good],
    ['/feedback/challenge', { wallet: wallet.address, ...BUG }],
  ] as const) {
    const reply = await gateway.call(path, { method: 'POST', json });
    t.strictSame([reply.status, reply.json.error.code], [429, 'RATE_LIMITED']);
    t.equal(reply.headers.get('x-ratelimit-scope'), 'feedback');
    t.equal(reply.headers.get('x-ratelimit-policy'), '3;w=60');
  }
  const speech = await gateway.call('/tts?text=Hello');
  t.strictSame([speech.status, speech.headers.get('x-ratelimit-remaining')], [402, '2']);
  t.equal((await gateway.call('/feedback', { method: 'POST', json: {} })).status, 400, 'R7: the contract comes first');
});

test('R47: without FEEDBACK_SECRET both endpoints answer 503 CONFIG_ERROR', async (t) => {
  const gateway = await startGateway(t, { FEEDBACK_SECRET: '' });
  const good = { wallet: viemWallet().address, ...BUG };
  for (const [path, json] of [
    ['/feedback/challenge', good],
    ['/feedback', { ...good, challenge: 'c', signature: 's' }],
  ] as const) {
    const reply = await gateway.call(path, { method: 'POST', json });
    t.strictSame([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
    t.strictSame(reply.json.error.details, { setting: 'FEEDBACK_SECRET' });
  }
});

test('all wallets together may send FEEDBACK_MAX_PER_HOUR messages in an hour', async (t) => {
  const { gateway, clock } = await gatewayWithClock(t, { FEEDBACK_MAX_PER_HOUR: '3' });
  for (let count = 0; count < 3; count++) {
    t.equal((await give(gateway, viemWallet())).status, 201);
    await clock.advance('10 minutes');
  }
  const refused = await give(gateway, viemWallet());
  t.strictSame([refused.status, refused.json.error.code], [429, 'FEEDBACK_RATE_LIMITED']);
  t.equal(refused.headers.get('retry-after'), '1800');
  t.strictSame(refused.json.error.details, { limit: 3, windowSeconds: 3600, retryAfterSeconds: 1800 });
  t.equal((await stored(gateway)).length, 3);
  await clock.advance('30 minutes');
  const fresh = await Promise.all(Array.from({ length: 3 }, () => signedFeedback(gateway, viemWallet())));
  const statuses = await Promise.all(fresh.map(async (signed) => (await submit(gateway, signed)).status));
  t.strictSame(statuses.sort(), [201, 429, 429], 'the limit is exact when several come at once');
});

test('mailed feedback is deleted after FEEDBACK_RETENTION_DAYS', async (t) => {
  const gateway = await startGateway(t, { FEEDBACK_RETENTION_DAYS: '30' });
  const ids: string[] = [];
  for (let count = 0; count < 4; count++) ids.push((await give(gateway, viemWallet())).json.feedbackId);
  const [, mailed, unmailed, young] = ids as [string, string, string, string];
  await sql`update feedback set received_at = now() - interval '30 days 1 second' where id <> ${young}`.execute(
    gateway.db,
  );
  await sql`update feedback set received_at = now() - interval '29 days 23 hours' where id = ${young}`.execute(
    gateway.db,
  );
  await sql`update feedback set notification = 'queued' where id in (${mailed}, ${unmailed})`.execute(gateway.db);
  await sql`update feedback set mailed_at = now() where id = ${mailed}`.execute(gateway.db);
  t.equal((await runTurn(gateway, 'old_feedback')).count, 2);
  t.strictSame((await stored(gateway)).map(({ id }) => id).sort(), [unmailed, young].sort());
});
