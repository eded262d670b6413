import assert from 'node:assert/strict';
import { test } from 'tap';
import { startGateway } from '../support/gateway.ts';

const SPEECH = { json: { text: 'Hello world' }, method: 'POST' };
const REPEATED: [path: string, name: string, call: object][] = [
  ['/tts?text=Hello', 'x-credit-account', {}],
  ['/tts', 'x-credit-account', SPEECH],
  ['/tts', 'x-credit-max-amount', SPEECH],
  ['/tts?async=true', 'idempotency-key', SPEECH],
  ['/x402/tts', 'payment-signature', SPEECH],
  ['/x402/tts', 'x-x402-account', SPEECH],
  ['/x402/tts?text=Hello', 'x-x402-nonce', {}],
  ['/x402/tts', 'x-x402-expiry', SPEECH],
  ['/x402/tts', 'x-x402-max-amount', SPEECH],
  ['/x402/tts', 'x-x402-signature', SPEECH],
  ['/x402/deposit', 'payment-signature', { method: 'POST', json: { amountMicroUsd: 100_000 } }],
  [`/x402/accounts/0x${'1'.repeat(40)}`, 'x-x402-signature', {}],
];

test('a header of one value that is sent twice is 400 and named, also with the same value', async (t) => {
  const gateway = await startGateway(t);
  for (const [path, name, call] of REPEATED) {
    for (const values of [
      ['1', '2'],
      ['1', '1'],
      ['1', ''],
    ]) {
      const reply = await gateway.call(path, { ...call, headers: { [name]: values } });
      assert.deepEqual([reply.status, reply.json.error.code], [400, 'INVALID_REQUEST'], `${path} ${name}`);
      assert.deepEqual(reply.json.error.details, { field: name, rule: 'once' });
    }
  }
});
