import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { openFileBudget } from '../../../src/callers/budget/file-budget.ts';
import { boundedResponse, openApi } from '../../../src/callers/client/api.ts';
import { cardCredits as byCard, Speechgate as CardClient, type CardCredits } from '../../../src/callers/client/card.ts';
import { Catalog } from '../../../src/callers/client/catalog.ts';
import {
  cardCredits,
  directX402,
  type PinnedKey,
  prepaid,
  Speechgate,
  SpeechgateError,
  UntrustedError,
} from '../../../src/callers/client/index.ts';
import { parseSigningKeys, rotateKeys, type SigningKey } from '../../../src/config/signing-keys.ts';
import type { SignedServiceMetadata } from '../../../src/contract/types.ts';
import { countingWallet, ONE_MODEL, pinsOf } from '../../support/client.ts';
import { startGateway } from '../../support/gateway.ts';
import {
  changed,
  ofMetadata,
  type Payload,
  signatureOf,
  startTamperingProxy,
  type Tamper,
} from '../../support/tampering-proxy.ts';
import { until } from '../../support/until.ts';
import { budgetPath } from '../budget/support.ts';

const proxy = await startTamperingProxy(t);
const gateway = await startGateway(t, { BASE_URL: proxy.url });
proxy.target = gateway.url;
const baseUrl = proxy.url;

test('a quote request sends the length and digest of the text, never the text', async (t) => {
  const bodies: string[] = [];
  const client = new Speechgate({
    baseUrl,
    trust: pinsOf(gateway),
    fetch: async (request, init) => {
      bodies.push(await (request as Request).clone().text());
      return fetch(request, init);
    },
  });
  const text = 'Grüße aus dem Osten';
  const quote = await client.quote({ text: ` ${text}\n`, speed: 1.5 });
  t.equal(quote.amountMicroUsd, BigInt(text.length * 18));
  t.strictSame([quote.textLength, quote.speed], [text.length, 1.5]);
  t.equal(quote.textSha256, createHash('sha256').update(text).digest('hex'));
  t.ok(bodies.some((body) => body.includes(quote.textSha256)));
  t.ok(!bodies.some((body) => body.includes('Osten')));
});

test('a call that the way to pay does not allow is a typed error', async (t) => {
  const client = new Speechgate({ baseUrl });
  await assert.rejects(client.speak({ text: 'Hello world' }), SpeechgateError);
  await assert.rejects(client.deposit(100_000n), SpeechgateError);
  await assert.rejects(client.metadata(), SpeechgateError);
  const wallet = privateKeyToAccount(generatePrivateKey());
  await t.rejects(new Speechgate({ baseUrl, pay: directX402(wallet) }).balance(), /on the chain/);
});

test('plain http is refused for other machines unless it is allowed', async (t) => {
  for (const [url, isAllowed, isTaken] of [
    ['https://speech.example', false, true],
    ['http://127.9.9.9', false, true],
    ['http://localhost:8080', false, true],
    ['http://[::1]:8080', false, true],
    ['http://speech.example', false, false],
    ['http://10.0.0.1', false, false],
    ['http://localhost.example', false, false],
    ['http://127.0.0.1.example', false, false],
    ['http://[::ffff:10.0.0.1]', false, false],
    ['http://gateway:8080', true, true],
    ['ws://gateway:8080', true, false],
  ] as const) {
    const open = () => new Speechgate({ baseUrl: url, allowInsecureHttp: isAllowed });
    if (isTaken) t.doesNotThrow(open, url);
    else t.throws(open, TypeError, url);
  }
});

const METADATA = '/.well-known/x402-service-metadata';
const [current, next] = gateway.config.signingKeys as [SigningKey, SigningKey];
const [stranger] = parseSigningKeys(JSON.stringify(rotateKeys(undefined, new Date())), new Date()) as [SigningKey];
const [pin, nextPin] = pinsOf(gateway) as [PinnedKey, PinnedKey];
const later = (ms: number) => new Date(Date.now() + ms).toISOString();
const MINUTE = 60_000;
const open = (trust = [pin]) => new Speechgate({ baseUrl: proxy.url, trust });
const reasonOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'none',
    (error) => (error instanceof UntrustedError ? error.reason : Promise.reject(error)),
  );

test('metadata signed by a pinned key is accepted and cached until it expires', async (t) => {
  proxy.tamper = undefined;
  proxy.requestedPaths.length = 0;
  const client = open();
  const [metadata, same] = await Promise.all([client.metadata(), client.metadata()]);
  t.equal(metadata.service.origin, proxy.url);
  t.equal(same, metadata);
  t.equal(await client.metadata(), metadata);
  t.strictSame(proxy.requestedPaths, [METADATA]);
});

/** What is changed in the document, and who signs it again; nobody where it says no key. */
const LIES: readonly (readonly [what: string, reason: string, path: string, value: unknown, key?: SigningKey])[] = [
  ['no document', 'malformed', 'payload', null],
  ['another payee', 'wrong_signature', 'payload.payment.payees', []],
  ['an extended validity', 'wrong_signature', 'payload.validity.validUntil', later(2 * MINUTE)],
  ['an unknown key', 'wrong_key', 'payload.service.name', 'a', stranger],
  [
    'an unknown key under a known key id',
    'wrong_signature',
    'payload.service.name',
    'a',
    { ...stranger, keyId: pin.keyId },
  ],
  ['a next key that is not current yet', 'wrong_key', 'payload.service.name', 'a', next],
  ['a retiring key', 'wrong_key', 'payload.trust.keys.0.status', 'retiring', current],
  ['another algorithm', 'wrong_algorithm', 'signature.algorithm', 'none'],
  ['another encoding', 'wrong_algorithm', 'signature.encoding', 'der'],
  ['no signature', 'wrong_signature', 'signature.value', ''],
  ['another origin', 'wrong_origin', 'payload.service.origin', 'http://b.example', current],
  ['another address', 'wrong_origin', 'payload.service.metadataUrl', 'http://b.example/', current],
  ['a future schema version', 'wrong_version', 'payload.schemaVersion', '2', current],
  ['another protocol', 'wrong_version', 'payload.protocol.version', 3, current],
  ['an expired validity', 'expired', 'payload.validity.validUntil', later(-2 * MINUTE), current],
  ['a year of validity', 'too_long', 'payload.validity.validUntil', later(365 * 1440 * MINUTE), current],
  ['an issue time in the future', 'early', 'payload.validity.issuedAt', later(5 * MINUTE), current],
  ['an invalid time', 'malformed', 'payload.validity.validFrom', 'soon', current],
  ['a validity that outlasts its key', 'expired_key', 'payload.trust.keys.0.validUntil', later(MINUTE), current],
];

test('invalid metadata is refused before any request or signature', async (t) => {
  for (const [what, reason, path, value, key] of LIES) {
    await t.test(what, async (t) => {
      proxy.tamper = ofMetadata((document) => changed(document, path, value), key);
      const wallet = countingWallet(privateKeyToAccount(generatePrivateKey()));
      const trust = what.includes('next') ? [pin, nextPin] : [pin];
      for (const pay of [directX402(wallet), prepaid(wallet)]) {
        const client = new Speechgate({ baseUrl: proxy.url, trust, pay });
        t.equal(await reasonOf(client.metadata()), reason);
        proxy.requestedPaths.length = 0;
        await assert.rejects(client.speak({ text: 'Hello world' }), UntrustedError);
        await assert.rejects(client.deposit(100_000n), UntrustedError);
        t.ok(!proxy.requestedPaths.includes('/x402/tts/quote'));
      }
      t.equal(wallet.signed, 0);
    });
  }
});

test('a pinned key is trusted until its pinned expiry, also if the metadata names none', async (t) => {
  proxy.tamper = undefined;
  t.equal(await reasonOf(open([{ ...pin, validUntil: later(-1) }]).metadata()), 'expired_key');
  const validUntil = later(MINUTE);
  const client = open([{ ...pin, validUntil }]);
  await client.metadata();
  t.equal(client.trustedKeys.find(({ keyId }) => keyId === pin.keyId)?.validUntil, validUntil);
});

/** The metadata ends a moment after it was read, so that the next call reads it again. */
const brief = (change: (payload: Payload) => void, key: SigningKey): Tamper =>
  ofMetadata((document) => {
    change(document.payload);
    document.payload.validity = { issuedAt: later(0), validFrom: later(0), validUntil: later(200) };
    return document;
  }, key);

function rotated({ trust }: Payload): void {
  const [first, second] = trust.keys;
  Object.assign(first ?? {}, { status: 'retiring', validUntil: later(10 * MINUTE) });
  Object.assign(second ?? {}, { status: 'current' });
}

test('a key rotation is followed only along keys that a trusted key vouches for', async (t) => {
  proxy.tamper = brief(() => {}, current);
  const client = open();
  await client.metadata();
  t.strictSame(client.trustedKeys.map(({ keyId }) => keyId).sort(), [current.keyId, next.keyId].sort());
  proxy.tamper = brief(rotated, next);
  await until(async () => (await client.metadata()).trust.keys[0]?.status === 'retiring');
  t.equal(await reasonOf(open().metadata()), 'wrong_key', 'without the step between');
  const [retiring] = client.trustedKeys;
  t.ok(Date.parse(retiring?.validUntil ?? '') > Date.now(), 'with its end');
  proxy.tamper = brief(rotated, stranger);
  await until(async () => (await reasonOf(client.metadata())) === 'wrong_key');
  proxy.tamper = brief(({ trust }) => void trust.keys.splice(0, 1), next);
  await until(async () => (await reasonOf(client.metadata())) === 'wrong_key');
});

test('a retiring key cannot extend itself, and cannot withdraw or name other keys', async (t) => {
  proxy.tamper = brief(rotated, next);
  const client = open([pin, nextPin]);
  await client.metadata();
  const { trustedKeys } = client;
  proxy.tamper = brief(({ trust }) => void trust.keys.splice(1, 1), current);
  await until(async () => (await reasonOf(client.metadata())) === 'replayed');
  t.strictSame(client.trustedKeys, trustedKeys);
  proxy.tamper = brief(rotated, next);
  t.equal(await reasonOf(client.metadata()), 'none');
});

test('replayed older metadata is refused, even with a trusted signature', async (t) => {
  const old = (await (await fetch(proxy.target + METADATA)).json()) as SignedServiceMetadata;
  old.payload.validity = { issuedAt: later(-MINUTE), validFrom: later(-MINUTE), validUntil: later(10 * MINUTE) };
  Object.assign(old, { signature: signatureOf(old.payload, current) });
  proxy.tamper = ofMetadata(() => old);
  t.equal(await reasonOf(open().metadata()), 'none', 'by itself it holds');
  const client = open();
  proxy.tamper = brief(() => {}, current);
  await client.metadata();
  proxy.tamper = ofMetadata(() => old);
  await until(async () => (await reasonOf(client.metadata())) === 'replayed');
});

/** A timeout that is read from a service whose guide has these limits. */
const reading = (limits: unknown) => {
  let asked = 0;
  const api = openApi('http://service.test', boundedResponse, async () => {
    asked += 1;
    return limits === undefined ? new Response('', { status: 503 }) : Response.json({ limits });
  });
  return { catalog: new Catalog(api), asked: () => asked };
};

test('a client waits 30 s longer than the service, and at least two minutes', async (t) => {
  const cases: readonly [limits: unknown, ms: number, reads: number][] = [
    [{ speechTimeoutSeconds: 600 }, 630_000, 1],
    [{ speechTimeoutSeconds: 45 }, 120_000, 1],
    [{ speechTimeoutSeconds: '600' }, 120_000, 2],
    [{ speechTimeoutSeconds: -1 }, 120_000, 2],
    [{ speechTimeoutSeconds: 1e9 }, 120_000, 2],
    [undefined, 120_000, 2],
  ];
  for (const [limits, ms, reads] of cases) {
    const { catalog, asked } = reading(limits);
    for (let read = 0; read < 2; read += 1)
      t.equal(await catalog.speechTimeoutMs(undefined), ms, JSON.stringify(limits));
    t.equal(asked(), reads, 'it is read again only after a failure');
  }
  const gateway = await startGateway(t, { SPEECH_TIMEOUT_MS: '300500' });
  t.equal(await new Catalog(openApi(gateway.url, boundedResponse)).speechTimeoutMs(undefined), 331_000);
});

// A cap that is no amount, or is misspelt, is refused: it would be none.

const NO_AMOUNTS: readonly unknown[] = [Number.NaN, 5, '5', '5n', -1n, null, {}, true];
const OPTIONS = { baseUrl: 'https://speech.example', pay: cardCredits('a') };
// biome-ignore lint/suspicious/noExplicitAny: callers without types give anything.
const openWith = (options: any) => new Speechgate({ ...OPTIONS, ...options });

test('a client refuses caps that are no amounts, unknown options and invalid values', async (t) => {
  for (const name of ['maxPerRequestMicroUsd', 'maxTotalMicroUsd']) {
    for (const value of NO_AMOUNTS)
      t.throws(() => openWith({ [name]: value }), { name: 'TypeError', message: new RegExp(name) });
    openWith({ [name]: 0n });
  }
  for (const options of [
    { maxPerRequest: 5n },
    { MaxTotalMicroUsd: 5n },
    { baseUrl: 5 },
    { baseUrl: 'speech' },
    { baseUrl: 'https://speech.example/v1' },
    { pay: 'card' },
    { trust: 'key' },
    { budget: 5n },
    { timeoutMs: -1 },
    { fetch: 'fetch' },
  ]) {
    t.throws(() => openWith(options), TypeError, Object.keys(options).join());
  }
});

test('a cap of a prototype applies, and a later change of the options does not', async (t) => {
  const own = { ...OPTIONS, maxPerRequestMicroUsd: 1n, fetch: async () => Response.json(ONE_MODEL) };
  const clients = [own, Object.create(own)].map((options) => new Speechgate(options));
  own.maxPerRequestMicroUsd = 1_000_000n;
  for (const client of clients) await t.rejects(client.speak({ text: 'Hello world' }), { name: 'OverCapError' });
});

test('a purchase, a deposit and a budget refuse invalid amounts and unknown options', async (t) => {
  // biome-ignore lint/suspicious/noExplicitAny: callers without types give anything.
  const client: any = openWith({});
  const path = await budgetPath(t);
  for (const value of NO_AMOUNTS) {
    await t.rejects(client.speak({ text: 'a' }, { maxMicroUsd: value }), { name: 'TypeError', message: /maxMicroUsd/ });
    for (const name of ['perCallMicroUsd', 'perDayMicroUsd', 'totalMicroUsd'])
      await t.rejects(openFileBudget(path, { [name]: value }), { name: 'TypeError', message: new RegExp(name) });
  }
  await t.rejects(client.speak({ text: 'a' }, { maxMicroUSD: 5n }), { name: 'TypeError', message: /maxMicroUSD/ });
  await t.rejects(client.deposit(5), { name: 'TypeError' });
  const misspelt: object = { perDay: 5n };
  await t.rejects(openFileBudget(path, misspelt), { name: 'TypeError', message: /perDay/ });
});

test('the card client refuses wallets, their purchases and pinned keys, and sends nothing', async (t) => {
  const wallet = countingWallet(privateKeyToAccount(generatePrivateKey()));
  const asked: unknown[] = [];
  const options = {
    baseUrl,
    pay: byCard('a'),
    fetch: async (request: unknown) => {
      asked.push(request);
      return Response.error();
    },
  };
  for (const pay of [directX402(wallet), prepaid(wallet)])
    t.throws(() => new CardClient({ ...options, pay: pay as object as CardCredits }), {
      name: 'SpeechgateError',
      message: /`\/x402`/,
    });
  const pinned: object = { trust: pinsOf(gateway) };
  t.throws(() => new CardClient({ ...options, ...pinned }), { name: 'TypeError', message: /no option trust/ });
  const client = new CardClient(options);
  for (const [kind, target] of [
    ['speech', '/x402/tts'],
    ['deposit', '/x402/deposit'],
  ] as const) {
    const pending = { flow: 'direct', kind, target, baseUrl, method: 'POST', headers: {}, body: '{}' } as const;
    const payment = { identifier: 'pay_0123456789abcdef', maxMicroUsd: '18', expiresAt: 1 };
    await t.rejects(client.resume({ ...pending, ...payment }), { name: 'SpeechgateError', message: /`\/x402`/ });
  }
  t.strictSame([asked.length, wallet.signed], [0, 0]);
});
