import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Test, test } from 'tap';
import { Facilitator, FacilitatorError } from '../../src/x402/facilitator.ts';

const PAYER = `0x${'ab'.repeat(20)}`;
const HASH = `0x${'cd'.repeat(32)}`;
const PAYMENT = {
  envelope: {
    authorization: { from: PAYER, value: 1n, validAfter: 0n, validBefore: 1n },
    signature: '0x',
    identifier: 'i',
  },
  offer: {},
  resource: { resource: {}, extensions: {} },
} as unknown as Parameters<Facilitator['verify']>[0];

/** A facilitator that answers every call with this. */
async function startFacilitator(t: Test, status: number, body: string): Promise<Facilitator> {
  const server = createServer((request, response) => {
    request.resume().on('end', () => response.writeHead(status).end(body));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const facilitator = new Facilitator(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, undefined);
  t.teardown(async () => {
    await facilitator.close();
    server.close();
    server.closeAllConnections();
  });
  return facilitator;
}

test('an answer of the facilitator of up to 64 KiB is read, and a larger one is none', async (t) => {
  const valid = JSON.stringify({ isValid: true, payer: PAYER });
  const ample = await startFacilitator(t, 200, valid.padEnd(65_536));
  assert.deepEqual(await ample.verify(PAYMENT), { valid: true });
  const excessive = await startFacilitator(t, 200, valid.padEnd(65_537));
  await assert.rejects(excessive.verify(PAYMENT), FacilitatorError);
});

const VALID: [number, object][] = [
  [200, { isValid: true, payer: PAYER }],
  [200, { isValid: true, payer: PAYER.toUpperCase().replace('0X', '0x') }],
  [200, { isValid: true, payer: '' }],
  [200, { isValid: true, payer: null }],
  [200, { isValid: true }],
  [201, { isValid: true, payer: PAYER }],
  [202, { isValid: true }],
  [299, { isValid: true }],
];

test('R25: any 2xx of verify is read like a 200, and an empty payer is none', async (t) => {
  for (const [status, body] of VALID) {
    const facilitator = await startFacilitator(t, status, JSON.stringify(body));
    assert.deepEqual(await facilitator.verify(PAYMENT), { valid: true }, `${status} ${JSON.stringify(body)}`);
  }
});

test('R24: a yes to verify for another payer, or with another status, is nonsense', async (t) => {
  for (const [status, body] of [
    [200, { isValid: true, payer: HASH.slice(0, 42) }],
    [200, { isValid: 'true' }],
    [304, { isValid: true }],
    [400, { isValid: true }],
    [503, { isValid: false, invalidReason: 'invalid_exact_evm_signature' }],
  ] as [number, object][]) {
    const facilitator = await startFacilitator(t, status, JSON.stringify(body));
    await assert.rejects(facilitator.verify(PAYMENT), FacilitatorError, `${status} ${JSON.stringify(body)}`);
  }
});

const REFUSED = { success: false, errorReason: 'insufficient_funds', transaction: '' };

test('R23: a settle is refused by a 2xx or 4xx for a reason that excludes a broadcast', async (t) => {
  for (const status of [200, 201, 202, 400, 402, 422]) {
    const facilitator = await startFacilitator(t, status, JSON.stringify(REFUSED));
    const answer = await facilitator.settle(PAYMENT);
    assert.deepEqual([answer.outcome, 'reason' in answer && answer.reason], ['refused', REFUSED.errorReason]);
  }
});

const OPEN: [string, number, unknown, string | undefined][] = [
  ['success', 200, { success: true, transaction: HASH }, HASH],
  ['success with 201', 201, { success: true, transaction: HASH }, HASH],
  ['success with 202', 202, { success: true, transaction: HASH }, HASH],
  ['a hash in upper case', 200, { success: true, transaction: `0x${HASH.slice(2).toUpperCase()}` }, HASH],
  ['a hash without 0x', 200, { success: true, transaction: HASH.slice(2) }, HASH],
  ['the older form', 200, { success: true, txHash: HASH }, HASH],
  ['the older form beside the newer one', 200, { success: true, transaction: '', txHash: HASH }, HASH],
  ['a pending settlement', 200, { success: false, errorReason: 'settlement_pending', transaction: HASH }, HASH],
  ['a pending settlement with 202', 202, { status: 'pending', transaction: HASH }, HASH],
  ['a refusal that names a transaction', 200, { ...REFUSED, transaction: HASH }, HASH],
  ['a refusal that names one in the older form', 200, { ...REFUSED, txHash: HASH }, HASH],
  ['an error that names a transaction', 500, { error: 'timeout', transaction: HASH }, HASH],
  ['success without a transaction', 200, { success: true }, undefined],
  ['success with something else', 200, { success: true, transaction: { hash: HASH } }, undefined],
  ['success with a short hash', 200, { success: true, transaction: HASH.slice(0, 60) }, undefined],
  ['a reason that excludes nothing', 200, { ...REFUSED, errorReason: 'nonce_already_used' }, undefined],
  ['no reason', 400, { success: false }, undefined],
  ['a refusal with 500', 500, REFUSED, undefined],
  ['an empty answer', 204, '', undefined],
  ['a redirect', 307, '', undefined],
];

test('R25: every other answer to settle leaves the end open, with the transaction it names', async (t) => {
  for (const [name, status, body, transaction] of OPEN) {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const answer = await (await startFacilitator(t, status, text)).settle(PAYMENT);
    assert.deepEqual(
      [answer.outcome, 'transaction' in answer ? answer.transaction : undefined],
      ['open', transaction],
      name,
    );
  }
});
