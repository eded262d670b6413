import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { directX402, type PinnedKey, prepaid, Speechgate, UntrustedError } from '../../src/client/index.ts';
import type { SignedServiceMetadata } from '../../src/contract/types.ts';
import { parseSigningKeys, rotateKeys, type SigningKey } from '../../src/x402/signing-keys.ts';
import { countingWallet, pinsOf } from '../support/client.ts';
import { startGateway } from '../support/gateway.ts';
import { changed, type Lie, ofMetadata, type Payload, signatureOf, startLyingServer } from '../support/lying-server.ts';
import { until } from '../support/until.ts';

const METADATA = '/.well-known/x402-service-metadata';
const lying = await startLyingServer(t);
const gateway = await startGateway(t, { BASE_URL: lying.url });
lying.target = gateway.url;

const [current, next] = gateway.config.signingKeys as [SigningKey, SigningKey];
const [stranger] = parseSigningKeys(JSON.stringify(rotateKeys(undefined, new Date())), new Date()) as [SigningKey];
const [pin, nextPin] = pinsOf(gateway) as [PinnedKey, PinnedKey];
const later = (ms: number) => new Date(Date.now() + ms).toISOString();
const MINUTE = 60_000;

const open = (trust = [pin]) => new Speechgate({ baseUrl: lying.url, trust });
const reasonOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'none',
    (error) => (error instanceof UntrustedError ? error.reason : Promise.reject(error)),
  );
test('metadata that a pinned key signed is taken as it is, and kept until it expires', async () => {
  lying.lie = undefined;
  lying.asked.length = 0;
  const client = open();
  const [metadata, same] = await Promise.all([client.metadata(), client.metadata()]);
  assert.equal(metadata.service.origin, lying.url);
  assert.equal(same, metadata);
  assert.equal(await client.metadata(), metadata);
  assert.deepEqual(lying.asked, [METADATA]);
});

/** What is changed in the document, and who signs it again; nobody where it says no key. */
const LIES: readonly (readonly [what: string, reason: string, path: string, value: unknown, key?: SigningKey])[] = [
  ['no document', 'malformed', 'payload', null],
  ['another payee', 'wrong_signature', 'payload.payment.payees', []],
  ['another network', 'wrong_signature', 'payload.payment.network', 'eip155:1'],
  ['another asset', 'wrong_signature', 'payload.payment.asset.address', '0x0'],
  ['another price', 'wrong_signature', 'payload.pricing.models', []],
  ['a later end', 'wrong_signature', 'payload.validity.validUntil', later(2 * MINUTE)],
  ['another key', 'wrong_signature', 'payload.trust.keys', []],
  ['an unknown key', 'wrong_key', 'payload.service.name', 'a', stranger],
  ['an unknown key by a known name', 'wrong_signature', 'payload.service.name', 'a', { ...stranger, keyId: pin.keyId }],
  ['a key that is only the next one', 'wrong_key', 'payload.service.name', 'a', next],
  ['a key that retires', 'wrong_key', 'payload.trust.keys.0.status', 'retiring', current],
  ['another algorithm', 'wrong_algorithm', 'signature.algorithm', 'none'],
  ['another encoding', 'wrong_algorithm', 'signature.encoding', 'der'],
  ['no signature', 'wrong_signature', 'signature.value', ''],
  ['another origin', 'wrong_origin', 'payload.service.origin', 'http://b.example', current],
  ['another address', 'wrong_origin', 'payload.service.metadataUrl', 'http://b.example/', current],
  ['a version to come', 'wrong_version', 'payload.schemaVersion', '2', current],
  ['another protocol', 'wrong_version', 'payload.protocol.version', 3, current],
  ['an end that has passed', 'expired', 'payload.validity.validUntil', later(-2 * MINUTE), current],
  ['a year of validity', 'too_long', 'payload.validity.validUntil', later(365 * 1440 * MINUTE), current],
  ['a time to come', 'early', 'payload.validity.issuedAt', later(5 * MINUTE), current],
  ['no time', 'malformed', 'payload.validity.validFrom', 'soon', current],
  ['an end after that of its key', 'expired_key', 'payload.trust.keys.0.validUntil', later(MINUTE), current],
];

test('metadata with a lie in it is refused before anything is asked or signed', async (t) => {
  for (const [what, reason, path, value, key] of LIES) {
    await t.test(what, async () => {
      lying.lie = ofMetadata((document) => changed(document, path, value), key);
      const wallet = countingWallet(privateKeyToAccount(generatePrivateKey()));
      const trust = what.includes('next') ? [pin, nextPin] : [pin];
      for (const pay of [directX402(wallet), prepaid(wallet)]) {
        const client = new Speechgate({ baseUrl: lying.url, trust, pay });
        assert.equal(await reasonOf(client.metadata()), reason);
        lying.asked.length = 0;
        await assert.rejects(client.speak({ text: 'Hello world' }), UntrustedError);
        await assert.rejects(client.deposit(100_000n), UntrustedError);
        assert.ok(!lying.asked.includes('/x402/tts/quote'));
      }
      assert.equal(wallet.signed, 0);
    });
  }
});

test('a pinned key that has ended is not trusted any more', async () => {
  lying.lie = undefined;
  assert.equal(await reasonOf(open([{ ...pin, validUntil: later(-1) }]).metadata()), 'expired_key');
  assert.equal(await reasonOf(open([{ ...pin, validUntil: later(MINUTE) }]).metadata()), 'none');
});

/** The metadata ends a moment after it was read, so that the next call reads it again. */
const brief = (change: (payload: Payload) => void, key: SigningKey): Lie =>
  ofMetadata((document) => {
    change(document.payload);
    document.payload.validity = { issuedAt: later(0), validFrom: later(0), validUntil: later(200) };
    return document;
  }, key);

test('a rotation is followed from a trusted key to the one that it vouches for, and no further', async () => {
  lying.lie = brief(() => {}, current);
  const client = open();
  await client.metadata();
  assert.deepEqual(client.trustedKeys.map(({ keyId }) => keyId).sort(), [current.keyId, next.keyId].sort());
  const rotated = ({ trust }: Payload) => {
    const [first, second] = trust.keys;
    Object.assign(first ?? {}, { status: 'retiring', validUntil: later(10 * MINUTE) });
    Object.assign(second ?? {}, { status: 'current' });
  };

  lying.lie = brief(rotated, next);
  await until(async () => (await client.metadata()).trust.keys[0]?.status === 'retiring');
  assert.equal(await reasonOf(open().metadata()), 'wrong_key', 'without the step between');
  const [retiring] = client.trustedKeys;
  assert.ok(Date.parse(retiring?.validUntil ?? '') > Date.now(), 'with its end');

  lying.lie = brief(rotated, stranger);
  await until(async () => (await reasonOf(client.metadata())) === 'wrong_key');
  lying.lie = brief(({ trust }) => void trust.keys.splice(0, 1), next);
  await until(async () => (await reasonOf(client.metadata())) === 'wrong_key');
});

test('a key that retires can not undo its end, nor withdraw or name other keys', async () => {
  const rotated = ({ trust }: Payload) => {
    const [first, second] = trust.keys;
    Object.assign(first ?? {}, { status: 'retiring', validUntil: later(10 * MINUTE) });
    Object.assign(second ?? {}, { status: 'current' });
  };
  lying.lie = brief(rotated, next);
  const client = open([pin, nextPin]);
  await client.metadata();
  const { trustedKeys } = client;
  lying.lie = brief(({ trust }) => void trust.keys.splice(1, 1), current);
  await until(async () => (await reasonOf(client.metadata())) === 'replayed');
  assert.deepEqual(client.trustedKeys, trustedKeys);
  lying.lie = brief(rotated, next);
  assert.equal(await reasonOf(client.metadata()), 'none');
});

test('the end of a pinned key is kept, though the metadata names none', async () => {
  lying.lie = undefined;
  const validUntil = later(MINUTE);
  const client = open([{ ...pin, validUntil }]);
  await client.metadata();
  assert.equal(client.trustedKeys.find(({ keyId }) => keyId === pin.keyId)?.validUntil, validUntil);
});

test('metadata from before what was seen is refused, also when a trusted key signed it', async () => {
  const old = (await (await fetch(lying.target + METADATA)).json()) as SignedServiceMetadata;
  old.payload.validity = { issuedAt: later(-MINUTE), validFrom: later(-MINUTE), validUntil: later(10 * MINUTE) };
  Object.assign(old, { signature: signatureOf(old.payload, current) });
  lying.lie = ofMetadata(() => old);
  assert.equal(await reasonOf(open().metadata()), 'none', 'by itself it holds');

  const client = open();
  lying.lie = brief(() => {}, current);
  await client.metadata();
  lying.lie = ofMetadata(() => old);
  await until(async () => (await reasonOf(client.metadata())) === 'replayed');
});
