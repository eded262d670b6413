import assert from 'node:assert/strict';
import { test } from 'tap';
import { privateKeyToAccount } from 'viem/accounts';
import { SIGNING_VECTORS } from '../../src/x402/prepaid-vectors.ts';
import { testDatabase } from '../support/database.ts';
import { controlDatabaseClock } from '../support/database-clock.ts';
import { type Call, startGateway } from '../support/gateway.ts';
import { depositor, startPrepaidGateway, withHeaders } from '../support/prepaid.ts';

test('R41: each flow has its member of payment and its steps, and the limits keep the names that clients read', async (t) => {
  const gateway = await startGateway(t);
  const { limits, payment, agentGuide } = (await gateway.call('/docs')).json;
  assert.deepEqual([limits.maxTextLength, limits.getTtsMaxTextLength], [4096, 1500]);
  assert.deepEqual([limits.depositConfirmations, limits.depositTimeoutSeconds], [2, 120]);
  assert.equal(gateway.config.x402?.confirmationTimeoutMs, 120_000);
  assert.deepEqual(Object.keys(payment), ['cardCredits', 'directX402', 'prepaidX402']);
  for (const flow of Object.keys(payment)) assert.ok(agentGuide[flow].length >= 4, flow);
  assert.match(agentGuide.privacy, /neither logged nor stored nor forwarded/);
});

test('the guide publishes SPEECH_TIMEOUT_MS in whole seconds, rounded up', async (t) => {
  for (const [env, seconds] of [
    [{}, 45],
    [{ SPEECH_TIMEOUT_MS: '90001' }, 91],
    [{ SPEECH_TIMEOUT_MS: '100', SPEECH_BASE_URL: 'embedded:' }, 1],
    [{ SPEECH_BASE_URL: '' }, 45],
  ] as const) {
    const gateway = await startGateway(t, env);
    assert.equal((await gateway.call('/docs')).json.limits.speechTimeoutSeconds, seconds, JSON.stringify(env));
  }
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

test('the published requests, sent as they are to a service of their domain, are served while they last', async (t) => {
  const { url: databaseUrl } = await testDatabase(t);
  const clock = await controlDatabaseClock(databaseUrl);
  t.teardown(() => clock.close());
  const { domain, privateKey, requests } = SIGNING_VECTORS;
  const expiry = Number(requests[0].message.expiry);
  await clock.advance(`${expiry - 60 - Date.parse('2030-01-01T00:00:00Z') / 1000} seconds`);
  const env = { SERVICE_NAME: 'example', X402_PAY_TO: domain.verifyingContract };
  const example = await startPrepaidGateway(t, env, { databaseUrl });
  await depositor(example, 100_000n, privateKeyToAccount(privateKey));
  const { vectors } = (await example.call('/docs')).json.payment.prepaidX402.authentication;
  for (const { shows, request, headers } of vectors.requests) {
    const { method, target, body } = request;
    const call: Call = withHeaders({ method, headers, body }, { 'content-type': body && 'application/json' });
    const changed = withHeaders(call, { 'x-x402-nonce': 'another' });
    assert.equal((await example.call(target, changed)).status, 401, shows);
    const reply = await example.call(target, call);
    assert.equal(reply.status, 200, `${shows}: ${reply.text.slice(0, 300)}`);
  }
  await clock.advance('61 seconds');
  const [{ request, headers }] = vectors.requests.slice(-1);
  assert.equal((await example.call(request.target, { headers })).status, 400, 'they have expired since');
});
