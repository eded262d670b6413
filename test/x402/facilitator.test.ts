import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Test, test } from 'tap';
import { Facilitator, FacilitatorError } from '../../src/x402/facilitator.ts';

const PAYER = `0x${'ab'.repeat(20)}`;
const PAYMENT = {
  envelope: {
    authorization: { from: PAYER, value: 1n, validAfter: 0n, validBefore: 1n },
    signature: '0x',
    identifier: 'i',
  },
  offer: {},
  resource: { resource: {}, extensions: {} },
} as unknown as Parameters<Facilitator['verify']>[0];

/** A facilitator that finds every payment valid, in an answer of so many bytes. */
async function startFacilitator(t: Test, bytes: number): Promise<Facilitator> {
  const server = createServer((request, response) => {
    request.resume().on('end', () => response.end(JSON.stringify({ isValid: true, payer: PAYER }).padEnd(bytes)));
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
  const ample = await startFacilitator(t, 65_536);
  assert.deepEqual(await ample.verify(PAYMENT), { valid: true });
  const excessive = await startFacilitator(t, 65_537);
  await assert.rejects(excessive.verify(PAYMENT), FacilitatorError);
});
