import assert from 'node:assert/strict';
import test from 'node:test';
import { PREPAID } from '../../src/x402/prepaid.ts';
import { SIGNING_VECTORS } from '../../src/x402/prepaid-vectors.ts';
import { startGateway } from '../support/gateway.ts';

test('R41: each flow has its member of payment and its steps, and the limits keep the names that clients read', async (t) => {
  const gateway = await startGateway(t);
  const { limits, payment, agentGuide } = (await gateway.call('/docs')).json;
  assert.deepEqual([limits.maxTextLength, limits.getTtsMaxTextLength], [4096, 1500]);
  assert.deepEqual(Object.keys(payment), ['cardCredits', 'directX402', 'prepaidX402']);
  for (const flow of Object.keys(payment)) assert.ok(agentGuide[flow].length >= 4, flow);
  assert.match(agentGuide.privacy, /neither logged nor stored nor forwarded/);
});

test("the guide's domain name is that of this service, its fields and headers those of the signed metadata", async (t) => {
  const gateway = await startGateway(t, { SERVICE_NAME: 'example' });
  const { authentication } = (await gateway.call('/docs')).json.payment.prepaidX402;
  const signed = (await gateway.call('/.well-known/x402-service-metadata')).json.payload.prepaid.authentication;
  assert.deepEqual(
    [authentication.domain.name, authentication.domain.version, authentication.primaryType],
    [signed.domainName, signed.domainVersion, signed.primaryType],
  );
  assert.equal(signed.domainName, 'example-Prepaid');
  assert.deepEqual(Object.keys(authentication.headers), signed.headers);
  const fields = authentication.types.PrepaidRequest.map(({ name }: { name: string }) => name);
  assert.deepEqual(Object.keys(authentication.message), fields);
});

test('the published requests, sent as they are to the service of their domain, carry valid signatures', async (t) => {
  const payee = SIGNING_VECTORS.domain.verifyingContract;
  const example = await startGateway(t, { SERVICE_NAME: 'example', X402_PAY_TO: payee });
  const { vectors } = (await example.call('/docs')).json.payment.prepaidX402.authentication;
  for (const { shows, request, headers } of vectors.requests) {
    const { method, target, body } = request;
    const call = {
      method,
      headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
      ...(body !== undefined && { body }),
    };
    const reply = await example.call(target, call);
    assert.notEqual(reply.status, 401, `${shows}: ${reply.text}`);
    const changed = { ...call, headers: { ...call.headers, [PREPAID.headers[1]]: 'another' } };
    assert.equal((await example.call(target, changed)).status, 401, shows);
  }
});
