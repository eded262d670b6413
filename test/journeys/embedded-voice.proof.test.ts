import assert from 'node:assert/strict';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../support/chain.ts';
import type { Call, Gateway, Reply } from '../support/gateway.ts';
import { bookDeposit, domainOf, noncesOf, withCredential } from '../support/prepaid.ts';
import { HELLO, payFor, sign, startX402Gateway, timesPaid, withPayment } from '../support/x402.ts';

const { chain, skip } = await testChain();

const NOTHING_CHARGED = { state: 'not_charged', amountMicroUsd: 0 };

const UNREADABLE = 'Say 你好 now';
const UNREADABLE_CALL: Call = { method: 'POST', json: { text: UNREADABLE } };
/** As long, so that its price is the same. */
const READABLE: Call = { method: 'POST', json: { text: 'Say it  now' } };
const QUERY = `?text=${encodeURIComponent(UNREADABLE)}`;

function assertRefused(reply: Reply, money: string, paid: object = { payment: NOTHING_CHARGED }): void {
  assert.deepEqual([reply.status, reply.json.error.code], [400, 'INVALID_REQUEST'], reply.text);
  const expected = { field: 'text', rule: 'script', ...paid };
  assert.deepEqual(reply.json.error.details, expected);
  assert.match(
    reply.json.error.message,
    /^text has a letter that is not Latin at character 5\. The embedded voice reads English only/,
  );
  assert.ok(reply.json.error.message.endsWith(money), reply.json.error.message);
}

const chargesOf = ({ db }: Gateway) => db.selectFrom('transfer').select('id').where('kind', '=', 'charge').execute();

test('what the embedded voice can not read is refused before anything is paid, in every flow', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain, { SPEECH_BASE_URL: 'embedded:' });
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account };
  const card: [string, Call][] = [
    ['/tts', { ...UNREADABLE_CALL, headers }],
    ['/tts', { method: 'POST', body: UNREADABLE, headers: { ...headers, 'content-type': 'text/plain' } }],
    [`/tts${QUERY}`, { headers }],
    ['/tts?async=true', { ...UNREADABLE_CALL, headers }],
  ];
  for (const [path, call] of card) assertRefused(await gateway.call(path, call), 'Nothing was charged.');
  assert.equal(await gateway.balance(account), 5_000_000n);

  const payer = await wallet(chain.client, 10_000n);
  for (const [path, call] of [
    ['/x402/tts', UNREADABLE_CALL],
    [`/x402/tts${QUERY}`, {}],
  ] as [string, Call][]) {
    assertRefused(await gateway.call(path, call), 'Nothing was settled.', {});
  }
  const { payload } = await payFor(gateway, payer, READABLE);
  assert.equal(await timesPaid(chain, payer), 1);
  const { accepted, resource, x402Version, extensions } = payload;
  const another = await sign(payer, {
    x402Version,
    ...(resource && { resource }),
    ...(extensions && { extensions }),
    accepts: [accepted],
  } as Parameters<typeof sign>[1]);
  assertRefused(await gateway.call('/x402/tts', withPayment(UNREADABLE_CALL, another)), 'Nothing was settled.');
  assert.equal(await timesPaid(chain, payer), 1);

  await bookDeposit(gateway.db, payer.address.toLowerCase(), 100_000n);
  const domain = domainOf(gateway.payTo, `${gateway.config.serviceName}-Prepaid`);
  for (const [path, call] of [
    ['/x402/tts', UNREADABLE_CALL],
    [`/x402/tts${QUERY}`, {}],
  ] as const) {
    assertRefused(await gateway.call(path, await withCredential(payer, domain, path, call)), 'Nothing was charged.');
  }
  assert.deepEqual(await noncesOf(gateway), []);
  assert.deepEqual(await chargesOf(gateway), []);
  assert.equal((await gateway.call('/x402/tts', await withCredential(payer, domain, '/x402/tts', HELLO))).status, 200);
  assert.deepEqual(await audit(gateway.db), []);
});
