import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { mock } from 'node:test';
import { type Test, test } from 'tap';
import { rotateKeys, type StoredKeys, watchKeyExpiry } from '../../src/config/signing-keys.ts';
import { ServiceMetadata } from '../../src/payments/x402/metadata.ts';
import { BASE_URL, startGateway } from '../support/gateway.ts';
import { isSignedBy } from '../support/metadata.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const PAYEE = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
const NEXT_PAYEE = '0xcA11bde05977b3631167028862bE2a173976CA11';
const PATH = '/.well-known/x402-service-metadata';

async function startSigned(t: Test, keys: StoredKeys, env: Record<string, string> = {}) {
  const file = join(await temporaryFolder(t), 'keys.json');
  await writeFile(file, JSON.stringify(keys));
  return startGateway(t, {
    X402_PAY_TO: `${PAYEE},${NEXT_PAYEE}:next:2030-01-01`,
    X402_FACILITATOR_URL: 'http://127.0.0.1:1',
    X402_RPC_URL: 'http://127.0.0.1:1',
    SIGNING_KEYS_FILE: file,
    ...env,
  });
}

test('R37: WebCrypto verifies the metadata signature with the published key', async (t) => {
  const stored = rotateKeys(rotateKeys(undefined, new Date(Date.now() - 1000)), new Date());
  const { payload, signature } = (await (await startSigned(t, stored)).call(PATH)).json;
  const current = stored.keys.find(({ status }) => status === 'current');
  t.equal(signature.keyId, current?.kid);
  const { publicKeyJwk } = payload.trust.keys.find(({ keyId }: { keyId: string }) => keyId === signature.keyId);
  t.equal(await isSignedBy(publicKeyJwk, { payload, signature }), true);
  const changed = { ...payload, payment: { ...payload.payment, network: 'eip155:1' } };
  t.equal(await isSignedBy(publicKeyJwk, { payload: changed, signature }), false);
  const told = payload.trust.keys.map(({ status }: { status: string }) => status);
  t.strictSame(told, ['retiring', 'current', 'next']);
  t.ok(!JSON.stringify(payload).includes(String(current?.d)), 'a private key is never published');
});

test("the metadata's figures match the catalog and the challenge", async (t) => {
  const gateway = await startSigned(t, rotateKeys(undefined, new Date()));
  const reply = await gateway.call(PATH);
  const { payload } = reply.json;
  const { models } = (await gateway.call('/tts/models')).json;
  t.strictSame(
    payload.pricing.models,
    models.map((model: { id: string; provider: string; maxInputCharacters: number }, index: number) => ({
      id: model.id,
      provider: model.provider,
      billingUnit: 'character',
      ratePerCharacterUsd: ['0.000018', '0.000036'][index],
      maxCharactersPerRequest: model.maxInputCharacters,
      maxChargeUsd: ['0.073728', '0.147456'][index],
    })),
  );
  const challenge = await gateway.call('/x402/tts', { method: 'POST', json: { text: 'x'.repeat(4096) } });
  const [offer] = challenge.json.error.details.accepts;
  const { network, asset, payees } = payload.payment;
  t.strictSame(
    [offer.network, offer.asset, offer.payTo, offer.extra.name, offer.amount],
    [network, asset.address, payees[0].address, asset.name, '73728'],
  );
  t.strictSame([asset.decimals, asset.symbol], [6, 'USDC']);
  t.strictSame([payees[1].validFrom, payload.service.metadataUrl], ['2030-01-01T00:00:00.000Z', `${BASE_URL}${PATH}`]);
  t.equal(payload.prepaid.authentication.domainName, 'speechgate-Prepaid');
  t.equal(payload.recovery.replayWindowSeconds, 86_400);
  const [, maxAge] = /^public, max-age=(\d+)$/.exec(reply.headers.get('cache-control') ?? '') ?? [];
  const validMs = Date.parse(payload.validity.validUntil) - Date.parse(payload.validity.validFrom);
  t.ok(Number(maxAge) > 0 && Number(maxAge) * 1000 <= validMs / 2);
});

test('R37: the metadata is signed again before half of its validity has passed', async (t) => {
  const gateway = await startSigned(t, rotateKeys(undefined, new Date()));
  const { x402, signingKeys, catalog, serviceName } = gateway.config;
  const options = {
    baseUrl: BASE_URL,
    serviceName,
    catalog,
    ...(x402 as NonNullable<typeof x402>),
    keys: signingKeys ?? [],
  };
  const metadata = new ServiceMetadata(gateway.db, options);
  const start = Date.now();
  let issued = new Set<string>();
  let payeeSince: string | undefined;
  for (let second = 0; second <= 1800; second += 10) {
    const now = start + second * 1000;
    const { document, maxAgeSeconds } = (await metadata.read(new Date(now))) ?? assert.fail();
    const { issuedAt, validUntil } = document.payload.validity;
    const validMs = Date.parse(validUntil) - Date.parse(issuedAt);
    t.ok(now - Date.parse(issuedAt) < validMs / 2);
    t.ok(now + maxAgeSeconds * 1000 <= Date.parse(issuedAt) + validMs / 2);
    issued = issued.add(issuedAt);
    payeeSince ??= document.payload.payment.payees[0]?.validFrom;
    t.equal(document.payload.payment.payees[0]?.validFrom, payeeSince);
  }
  t.ok(issued.size > 3);
});

test('the metadata expires with its signing key and is then 503 CONFIG_ERROR', async (t) => {
  const stored = rotateKeys(undefined, new Date(Date.now() - 1000));
  const end = Date.now() + 4000;
  const keys = stored.keys.map((key) =>
    key.status === 'current' ? { ...key, validUntil: new Date(end).toISOString() } : key,
  );
  const gateway = await startSigned(t, { keys });
  let served = 0;
  let reply = await gateway.call(PATH);
  await until(async () => {
    const asked = Date.now();
    reply = await gateway.call(PATH);
    if (reply.status !== 200) return true;
    served += 1;
    const { validFrom, validUntil } = reply.json.payload.validity;
    assert.ok(asked < end, 'nothing is served under a key whose time is over');
    assert.ok(Date.parse(validUntil) <= end, 'the metadata outlives its key');
    const [, maxAge] = /^public, max-age=(\d+)$/.exec(reply.headers.get('cache-control') ?? '') ?? [];
    assert.ok(asked + Number(maxAge) * 1000 <= (Date.parse(validFrom) + Date.parse(validUntil)) / 2);
    return false;
  });
  t.ok(served > 0);
  t.ok(Date.now() >= end);
  t.strictSame([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  t.strictSame(reply.json.error.details, { setting: 'SIGNING_KEYS_FILE', reason: 'signing_key_expired' });
  t.equal((await gateway.call('/x402/tts?text=a')).status, 402, 'what needs no signature goes on');
});

test("the signing key's expiry is logged 30 days ahead, as an error 7 days ahead", async (t) => {
  const DAY = 86_400_000;
  t.teardown(() => mock.reset());
  mock.timers.enable({ apis: ['setInterval', 'Date'], now: Date.parse('2026-01-01T00:00:00Z') });
  const lines: [level: string, atDay: number, line: object][] = [];
  const start = Date.now();
  const write = (level: string) => (line: object) => void lines.push([level, (Date.now() - start) / DAY, line]);
  const log = { warn: write('warn'), error: write('error') };
  const validUntil = new Date(start + 40 * DAY);
  const stop = watchKeyExpiry({ keyId: 'key-1', validUntil }, log);
  t.equal(lines.length, 0);
  for (let day = 0; day < 42; day++) mock.timers.tick(DAY);
  const told = lines.map(([level, atDay]) => [level, atDay]);
  t.strictSame(
    told,
    Array.from({ length: 33 }, (_, index) => [index < 23 ? 'warn' : 'error', index + 10]),
  );
  t.strictSame(lines[0]?.[2], { keyId: 'key-1', validUntil: validUntil.toISOString() });
  stop();
  mock.timers.tick(DAY);
  t.equal(lines.length, 33);
  watchKeyExpiry({ keyId: 'key-1', validUntil }, log)();
  t.equal(lines.length, 34, 'also at once when the process starts');
  watchKeyExpiry({ keyId: 'key-2', validUntil: undefined }, log)();
  t.equal(lines.length, 34);
});

test('without signing keys or USDC payment, the metadata is 503 CONFIG_ERROR', async (t) => {
  const unsigned = await startSigned(t, rotateKeys(undefined, new Date()), { SIGNING_KEYS_FILE: '' });
  const off = await startSigned(t, rotateKeys(undefined, new Date()), {
    X402_PAY_TO: '',
    X402_FACILITATOR_URL: '',
    X402_RPC_URL: '',
  });
  for (const gateway of [unsigned, off]) {
    const reply = await gateway.call(PATH);
    t.strictSame([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  }
});
