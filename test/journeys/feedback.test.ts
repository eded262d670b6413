import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'tap';
import { BUG, give, signedFeedback, submit } from '../support/feedback.ts';
import { BASE_URL, startGateway } from '../support/gateway.ts';
import { plainWallet, viemWallet } from '../support/wallet.ts';
import { gatewayWithClock, stored } from './feedback.ts';

test('a wallet signs feedback with viem, or with an independent library, and it is stored', async (t) => {
  const gateway = await startGateway(t);
  for (const wallet of [viemWallet(), plainWallet()]) {
    const reply = await give(gateway, wallet);
    assert.equal(reply.status, 201, reply.text);
    assert.equal(reply.json.notification, 'not_configured');
    assert.equal(reply.headers.get('x-ratelimit-scope'), 'feedback');
    const row = await gateway.db
      .selectFrom('feedback')
      .selectAll()
      .where('id', '=', reply.json.feedbackId)
      .executeTakeFirstOrThrow();
    assert.equal(row.wallet, wallet.address.toLowerCase());
    assert.equal(row.category, BUG.category);
    assert.equal(row.message, BUG.message);
    assert.deepEqual(row.details, BUG.details);
    assert.equal(row.trace_id, reply.headers.get('x-trace-id'));
    assert.equal(row.received_at.toISOString(), reply.json.receivedAt);
    assert.equal(row.mailed_at, null);
    assert.equal(await wallet.sign(row.signing_message).then((text) => text.length), row.signature.length);
  }
  assert.equal((await stored(gateway)).length, 2);
});

test('R38, R53: the digest is SHA-256 of canonical JSON, the wallet in lower case, absent details left out', async (t) => {
  const gateway = await startGateway(t);
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
      assert.equal(reply.status, 200, reply.text);
      assert.equal(reply.json.payloadSha256, createHash('sha256').update(canonical).digest('hex'));
      assert.equal(reply.json.wallet, wallet);
    }
  }
});

test('the message to sign names service, wallet, category, digest, nonce and times; nothing is stored yet', async (t) => {
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
    assert.ok(lines.includes(line), line);
  }
  assert.match(json.signingMessage, /^[\x20-\x7e\n]+$/);
  assert.equal(Date.parse(json.expiresAt) - Date.parse(json.issuedAt), 600_000, 'the default is 600 s');
  assert.notEqual((await gateway.call('/feedback/challenge', call)).json.nonce, json.nonce);
  assert.deepEqual(await stored(gateway), []);
});

test('every mutation gets its code, nothing is stored, and the challenge stays usable', async (t) => {
  const gateway = await startGateway(t);
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
    ['a space before the message', { message: ` ${BUG.message}` }, 400, 'FEEDBACK_PAYLOAD_MISMATCH'],
    ['another category', { category: 'pricing' }, 400, 'FEEDBACK_PAYLOAD_MISMATCH'],
    ['another detail', { details: { ...BUG.details, agent: 'other' } }, 400, 'FEEDBACK_PAYLOAD_MISMATCH'],
    ['a detail more', { details: { ...BUG.details, traceId: 't' } }, 400, 'FEEDBACK_PAYLOAD_MISMATCH'],
    ['a detail less', { details: { agent: BUG.details?.agent } }, 400, 'FEEDBACK_PAYLOAD_MISMATCH'],
    ['no details', { details: undefined }, 400, 'FEEDBACK_PAYLOAD_MISMATCH'],
    ['empty details', { details: {} }, 400, 'FEEDBACK_PAYLOAD_MISMATCH'],
    ['a challenge that is empty', { challenge: '' }, 400, 'FEEDBACK_CHALLENGE_INVALID'],
    ['a challenge that is none', { challenge: 'nonsense' }, 400, 'FEEDBACK_CHALLENGE_INVALID'],
    ['a challenge that was changed', { challenge: `${header}.${forged}.${mac}` }, 400, 'FEEDBACK_CHALLENGE_INVALID'],
    ['a challenge of another service', { challenge: foreign.challenge }, 400, 'FEEDBACK_CHALLENGE_INVALID'],
    ['the signature of another challenge', { signature: another.signature }, 401, 'FEEDBACK_SIGNATURE_INVALID'],
    ['another signer', { signature: await other.sign('hello') }, 401, 'FEEDBACK_SIGNATURE_INVALID'],
    [
      'a changed signature',
      { signature: signature.replace(/^0x(.)/, (_all, hex) => `0x${hex === '1' ? 2 : 1}`) },
      401,
      'FEEDBACK_SIGNATURE_INVALID',
    ],
    ['a signature that is too short', { signature: signature.slice(0, -2) }, 401, 'FEEDBACK_SIGNATURE_INVALID'],
    ['a signature that is empty', { signature: '' }, 401, 'FEEDBACK_SIGNATURE_INVALID'],
  ];
  for (const [name, mutation, status, code] of cases) {
    const reply = await submit(gateway, { ...good, ...mutation });
    assert.equal(reply.status, status, `${name}: ${reply.text}`);
    assert.equal(reply.json.error.code, code, name);
  }
  assert.deepEqual(await stored(gateway), []);

  const details = Object.fromEntries(Object.entries(BUG.details ?? {}).reverse());
  const same = { ...good, details: { ...details, unknown: 1 }, wallet: wallet.address.toLowerCase(), unknown: 2 };
  assert.equal(
    (await submit(gateway, same)).status,
    201,
    'the order of details, letter case and unknown members do not matter',
  );
  const again = await submit(gateway, good);
  assert.equal(again.status, 409);
  assert.equal(again.json.error.code, 'FEEDBACK_CHALLENGE_REPLAYED');
  const changed = await submit(gateway, { ...good, signature: another.signature });
  assert.equal(changed.json.error.code, 'FEEDBACK_SIGNATURE_INVALID', 'that it was used is told to the signer only');
});

test('20 equal submissions at once store one', async (t) => {
  const gateway = await startGateway(t);
  const good = await signedFeedback(gateway, plainWallet());
  const replies = await Promise.all(Array.from({ length: 20 }, () => submit(gateway, good)));
  assert.equal(replies.filter(({ status }) => status === 201).length, 1);
  const refused = replies.filter(({ status }) => status !== 201);
  for (const { json } of refused) assert.equal(json.error.code, 'FEEDBACK_CHALLENGE_REPLAYED');
  assert.equal((await stored(gateway)).length, 1);
});

test("a challenge ends at expiresAt by the database's clock, and a used one stays used", async (t) => {
  const { gateway, clock } = await gatewayWithClock(t, { FEEDBACK_CHALLENGE_TTL_SECONDS: '900' });
  const [first, second] = [viemWallet(), viemWallet()];
  const used = await signedFeedback(gateway, first);
  const late = await signedFeedback(gateway, second);
  await clock.advance('899.999999 seconds');
  assert.equal((await submit(gateway, used)).status, 201);
  await clock.advance('0.000001 seconds');
  const reply = await submit(gateway, late);
  assert.equal(reply.status, 400);
  assert.equal(reply.json.error.code, 'FEEDBACK_CHALLENGE_EXPIRED');
  assert.equal(reply.json.error.details.expiresAt, '2030-01-01T00:15:00.000Z');
  assert.equal((await submit(gateway, used)).json.error.code, 'FEEDBACK_CHALLENGE_REPLAYED');
  assert.equal((await stored(gateway)).length, 1);
});

test('what breaks the contract is named: type, length, size, media type', async (t) => {
  const gateway = await startGateway(t);
  const good = { wallet: viemWallet().address, ...BUG };
  const cases: [string, object, string, string][] = [
    ['no wallet', { wallet: undefined }, 'wallet', 'required'],
    ['a wallet that is too short', { wallet: good.wallet.slice(1) }, 'wallet', 'pattern'],
    ['a wallet with 0X', { wallet: `0X${good.wallet.slice(2)}` }, 'wallet', 'pattern'],
    ['no message', { message: undefined }, 'message', 'required'],
    ['a message of white space', { message: ' \n\t ' }, 'message', 'minLength'],
    ['a message of 4001 characters', { message: 'x'.repeat(4001) }, 'message', 'maxLength'],
    ['a message of 4000 emoji, 8000 UTF-16 code units', { message: '😀'.repeat(4000) }, 'message', 'maxLength'],
    ['a message with U+0000', { message: 'a\u0000b' }, 'message', 'wellFormed'],
    ['a message with a lone surrogate', { message: 'a\ud800b' }, 'message', 'wellFormed'],
    ['a message that is a number', { message: 5 }, 'message', 'type'],
    ['an unknown category', { category: 'praise' }, 'category', 'enum'],
    ['details that are null', { details: null }, 'details', 'type'],
    ['details that are a list', { details: [] }, 'details', 'type'],
    ['a detail with U+0000', { details: { agent: '\u0000' } }, 'details.agent', 'wellFormed'],
    ['a detail that is too long', { details: { errorCode: 'x'.repeat(101) } }, 'details.errorCode', 'maxLength'],
    ['a status that is none', { details: { lastHttpStatus: 42 } }, 'details.lastHttpStatus', 'minimum'],
    ['a status in quotes', { details: { lastHttpStatus: '402' } }, 'details.lastHttpStatus', 'type'],
  ];
  for (const path of ['/feedback/challenge', '/feedback']) {
    for (const [name, change, field, rule] of cases) {
      const json = { ...good, challenge: 'c', signature: 's', ...change };
      const reply = await gateway.call(path, { method: 'POST', json });
      assert.equal(reply.status, 400, `${path}, ${name}: ${reply.text}`);
      assert.equal(reply.json.error.code, 'INVALID_REQUEST', name);
      assert.equal(reply.json.error.details.field, field, name);
      assert.equal(reply.json.error.details.rule, rule, name);
    }
    const post = async (body: string | Buffer, type = 'application/json') => {
      const reply = await gateway.call(path, { method: 'POST', body, headers: { 'content-type': type } });
      return [reply.status, reply.json.error.code];
    };
    const padded = (bytes: number) => `{"wallet":5,"pad":"${'x'.repeat(bytes - 21)}"}`;
    assert.deepEqual(await post('{'), [400, 'INVALID_JSON']);
    assert.deepEqual(await post(Buffer.from('{"message":"\xff"}', 'latin1')), [400, 'INVALID_JSON']);
    assert.deepEqual(await post(padded(32_768)), [400, 'INVALID_REQUEST'], 'R4: 32 KiB are read');
    assert.deepEqual(await post(`${padded(32_768)} `), [413, 'REQUEST_TOO_LARGE']);
    assert.deepEqual(await post('{}', 'text/plain'), [415, 'UNSUPPORTED_CONTENT_TYPE']);
  }
});

test('R1: the message may be 4000 UTF-16 code units beside white space around it, and is kept as it was sent', async (t) => {
  const gateway = await startGateway(t);
  const message = `  ${'😀'.repeat(2000)}\r\n `;
  const reply = await give(gateway, viemWallet(), { message, category: 'other' });
  assert.equal(reply.status, 201, reply.text);
  assert.equal((await stored(gateway))[0]?.message, message);
});

test('GET / lists both endpoints where the specification has them, and the guide tells how to sign', async (t) => {
  const gateway = await startGateway(t);
  const { endpoints } = (await gateway.call('/')).json;
  const at = endpoints.indexOf('GET /docs');
  assert.deepEqual(endpoints.slice(at, at + 3), ['GET /docs', 'POST /feedback/challenge', 'POST /feedback']);
  const { agentGuide } = (await gateway.call('/docs')).json;
  assert.match(agentGuide.feedback.join('\n'), /personal_sign/);
});
