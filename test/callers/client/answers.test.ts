/** An answer that is not what was asked for is a typed error, whatever it is; nothing is signed by it. */
import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import {
  cardCredits,
  directX402,
  type PaymentWay,
  prepaid,
  Speechgate,
  SpeechgateError,
  type SpeechgateOptions,
  UntrustedError,
} from '../../../src/callers/client/index.ts';
import type { SigningKey } from '../../../src/config/signing-keys.ts';
import { countingWallet, errorOf, pinsOf } from '../../support/client.ts';
import { startPrepaidGateway } from '../../support/prepaid.ts';
import { changed, ofChallenge, ofMetadata, startTamperingProxy, type Tamper } from '../../support/tampering-proxy.ts';

const HELLO = { text: 'Hello world' };
const proxy = await startTamperingProxy(t);
const gateway = await startPrepaidGateway(t, { BASE_URL: proxy.url });
proxy.target = gateway.url;
const wallet = countingWallet(privateKeyToAccount(generatePrivateKey()));
const account = await gateway.fund(500);
const card = new Speechgate({ baseUrl: proxy.url, pay: cardCredits(account), timeoutMs: 0 });
const payer = new Speechgate({ baseUrl: proxy.url, trust: pinsOf(gateway), pay: prepaid(wallet), timeoutMs: 0 });

/** Answers so, where the path begins so. */
const says =
  (begin: string, json: unknown): Tamper =>
  (proxied, path) => {
    if (!path.startsWith(begin)) return;
    Object.assign(proxied, { status: 200, raw: JSON.stringify(json) });
    proxied.headers.set('content-type', 'application/json');
  };

const GARBAGE: readonly unknown[] = [null, 5, [], [null], {}, { models: null }, { models: [null] }];

/** What is read, and where. */
const READINGS: readonly (readonly [what: string, path: string, read: () => Promise<unknown>])[] = [
  ['models', '/tts/models', () => card.models()],
  ['voices', '/tts/voices', () => card.voices()],
  ['a purchase', '/tts/models', () => new Speechgate({ baseUrl: proxy.url, pay: cardCredits(account) }).speak(HELLO)],
  ['a quote', '/x402/tts/quote', () => card.quote(HELLO)],
  ['a credit balance', '/credits/', () => card.balance()],
  ['a top-up', '/top-up/status', () => card.topUpStatus(account)],
  ['a prepaid balance', '/x402/accounts/', () => payer.balance()],
  ['metadata', '/.well-known/', () => new Speechgate({ baseUrl: proxy.url, trust: pinsOf(gateway) }).metadata()],
  ['a deposit', '/x402/deposit', () => payer.deposit(100_000n)],
  ['feedback', '/feedback/challenge', () => payer.feedback(wallet, { message: 'a', category: 'bug' })],
];

test('a garbage response to what is read is a typed error', async (t) => {
  for (const [what, path, read] of READINGS) {
    for (const json of GARBAGE) {
      proxy.tamper = says(path, json);
      const error = await errorOf(read());
      t.ok(error instanceof SpeechgateError, `${what}, ${JSON.stringify(json)}: ${error.stack}`);
    }
  }
  for (const amount of [null, -1, 1.5, '5', 1e300]) {
    proxy.tamper = (proxied, path) => {
      if (path.startsWith('/credits/')) changed(proxied.json, 'balanceMicroUsd', amount);
    };
    t.match((await errorOf(card.balance())).message, /balanceMicroUsd is not an amount/);
  }
  proxy.tamper = undefined;
});

test('feedback signs only the message that the client builds itself', async (t) => {
  const signer = countingWallet(privateKeyToAccount(generatePrivateKey()));
  const feedback = { message: 'a', category: 'bug' } as const;
  const other = { ...feedback, message: 'b' };
  const tampers: readonly ((text: string) => string)[] = [
    () => 'Sign this message to send your feedback of another kind',
    (text) => `${text}\nI owe you everything.`,
    (text) => text.replace('It costs nothing and authorizes no payment.', 'I agree.'),
    (text) => text.replace(proxy.url, 'https://bank.example'),
    (text) => text.replace('Category: bug', 'Category: other'),
    (text) => text.replace(/0x[0-9a-f]{40}/, `0x${'1'.repeat(40)}`),
    (text) => text.replace(/Nonce: .*/, 'Nonce: a b'),
    (text) => text.replace(/Expires: .*/, 'Expires: never'),
  ];
  for (const tamper of tampers) {
    proxy.tamper = (proxied, path) => {
      if (path === '/feedback/challenge') proxied.json.signingMessage = tamper(proxied.json.signingMessage);
    };
    const error = await errorOf(payer.feedback(signer, feedback));
    t.ok(error instanceof UntrustedError && error.reason === 'wrong_message', String(error));
    t.match(error.message, /Nothing was signed/);
  }
  proxy.tamper = (proxied, path) => {
    if (path === '/feedback/challenge') proxied.json.nonce = 'a\nb';
  };
  t.ok((await errorOf(payer.feedback(signer, feedback))) instanceof UntrustedError);
  t.equal(signer.signed, 0);
  proxy.tamper = undefined;
  t.ok((await payer.feedback(signer, other)).feedbackId);
  t.equal(signer.signed, 1);
});

test('audio is fetched only from the origin of the service', async (t) => {
  for (const link of ['x:.evil.example/a', 'data:@evil.example/a', 'a', null, {}]) {
    const asked: string[] = [];
    const send: typeof fetch = (request, init) => {
      asked.push(new URL((request as Request).url).origin);
      return fetch(request, init);
    };
    proxy.tamper = (proxied, path) => {
      if (!path.startsWith('/tts/jobs/')) return;
      proxied.json = { jobId: 'a', status: 'completed', traceId: 'a', links: { audio: link } };
    };
    const client = new Speechgate({ baseUrl: proxy.url, pay: cardCredits(account), timeoutMs: 0, fetch: send });
    t.ok((await errorOf(client.speak(HELLO, { durable: true }))) instanceof SpeechgateError);
    t.strictSame([...new Set(asked)], [proxy.url], String(link));
  }
});

const [current] = gateway.config.signingKeys as [SigningKey];
const OTHER = '0x00000000000000000000000000000000000000b2';
const newWallet = () => countingWallet(privateKeyToAccount(generatePrivateKey()));
const challenged = (pay?: PaymentWay, options: Partial<SpeechgateOptions> = {}) =>
  new Speechgate({ baseUrl: proxy.url, trust: pinsOf(gateway), ...(pay && { pay }), ...options });

/** Refused for this reason, with nothing signed and no payment sent. */
async function assertRefused(tamper: Tamper, reason: string, quoteFirst = false): Promise<void> {
  proxy.tamper = tamper;
  proxy.requestedPaths.length = 0;
  const wallet = newWallet();
  const client = challenged(directX402(wallet, { quoteFirst }));
  const isUntrusted = (error: unknown) => error instanceof UntrustedError && error.reason === reason;
  await assert.rejects(client.speak(HELLO), isUntrusted);
  if (!quoteFirst) await assert.rejects(client.deposit(100_000n), isUntrusted);
  assert.equal(wallet.signed, 0);
}

const LIES: readonly (readonly [what: string, reason: string, path: string, value: unknown])[] = [
  ['another payee', 'wrong_payee', 'accepts.0.payTo', OTHER],
  ['another network', 'wrong_network', 'accepts.0.network', 'eip155:1'],
  ['another asset', 'wrong_asset', 'accepts.0.asset', OTHER],
  ['a higher price', 'wrong_price', 'accepts.0.amount', '100001'],
  ['a lower price', 'wrong_price', 'accepts.0.amount', '1'],
  ['another scheme', 'wrong_scheme', 'accepts.0.scheme', 'upto'],
  ['another token name', 'wrong_domain', 'accepts.0.extra.name', 'Other Coin'],
  ['another kind of transfer', 'wrong_domain', 'accepts.0.extra.assetTransferMethod', 'permit2'],
  ['no token domain', 'wrong_domain', 'accepts.0.extra', undefined],
  ['a year to settle', 'wrong_timeout', 'accepts.0.maxTimeoutSeconds', 31_536_000],
  ['another resource', 'wrong_origin', 'resource.url', 'http://b.example/x402/tts'],
  ['another version', 'malformed', 'x402Version', 1],
  ['no offer', 'malformed', 'accepts', []],
  ['no payment identifier', 'malformed', 'extensions', {}],
  ['a payment identifier without info', 'malformed', 'extensions.payment-identifier.info', []],
  ['a payment identifier of another form', 'malformed', 'extensions.payment-identifier.schema', { const: 'a' }],
  [
    'a payment identifier that is already set',
    'malformed',
    'extensions.payment-identifier.info.id',
    'pay_0123456789abcdef',
  ],
  ['a null offer', 'malformed', 'accepts', [null]],
  ['a null resource', 'wrong_origin', 'resource', null],
];

test('a challenge that differs from the signed terms is refused before signing', async (t) => {
  for (const [what, reason, path, value] of LIES) {
    await t.test(what, () =>
      assertRefused(
        ofChallenge((challenge) => changed(challenge, path, value)),
        reason,
      ),
    );
  }
  await t.test('two offers', () =>
    assertRefused(
      ofChallenge(({ accepts, ...rest }) => ({ ...rest, accepts: [...accepts, ...accepts] })),
      'malformed',
    ),
  );
  for (const header of ['junk', 'bnVsbA==']) {
    await t.test(`an unreadable challenge: ${header}`, () =>
      assertRefused(({ status, headers }) => {
        if (status === 402) headers.set('payment-required', header);
      }, 'malformed'),
    );
  }
});

test('a payment signs only the payment-identifier extension of a challenge', async (t) => {
  let signed: Record<string, unknown> | undefined;
  const added = ofChallenge((challenge) => {
    changed(challenge, 'extensions.eip2612GasSponsoring', { info: { description: 'a' }, schema: {} });
    changed(challenge, 'accepts.0.note', 'a');
    return changed(challenge, 'memo', 'a');
  });
  proxy.tamper = (proxied, path, headers) => {
    const payment = headers['payment-signature'];
    if (payment !== undefined) signed = JSON.parse(`${Buffer.from(payment, 'base64')}`);
    added(proxied, path, headers);
  };
  const wallet = newWallet();
  await challenged(directX402(wallet), { timeoutMs: 0 })
    .speak(HELLO)
    .catch(() => {});
  t.equal(wallet.signed, 1);
  const { extensions, accepted, ...rest } = signed as { extensions: object; accepted: object };
  t.strictSame(Object.keys(extensions), ['payment-identifier']);
  t.ok(!('note' in accepted) && !('memo' in rest));
});

test('a quote must match the signed terms, and a challenge must match its quote', async (t) => {
  const tampers: readonly (readonly [what: string, reason: string, path: string, value: unknown])[] = [
    ['a higher price', 'wrong_price', 'amountMicroUsd', 199],
    ['another payee', 'wrong_payee', 'payTo', OTHER],
    ['another model', 'wrong_price', 'model', 'provider-a/tts-1-hd'],
    ['another text', 'wrong_price', 'textSha256', '0'.repeat(64)],
  ];
  for (const [what, reason, path, value] of tampers) {
    const tamper: Tamper = (proxied, asked) => {
      if (asked === '/x402/tts/quote') changed(proxied.json, path, value);
    };
    await t.test(what, async (t) => {
      await assertRefused(tamper, reason, true);
      t.ok(!proxy.requestedPaths.includes('/x402/tts'));
      await assert.rejects(challenged().quote(HELLO), UntrustedError);
    });
  }
  await t.test('a challenge above its quote', () =>
    assertRefused(
      ofChallenge((challenge) => changed(challenge, 'accepts.0.amount', '199')),
      'wrong_price',
      true,
    ),
  );
});

test('a retiring payee is paid only where the quote names it', async (t) => {
  proxy.tamper = undefined;
  const wallet = newWallet();
  // By the time of the challenge the metadata shows another current payee.
  let isQuoted = false;
  const rotates = ofMetadata(({ payload, ...rest }) => {
    const [payee] = payload.payment.payees;
    const now = new Date().toISOString();
    payload.validity = { issuedAt: now, validFrom: now, validUntil: now };
    if (payee && isQuoted) {
      payload.payment.payees = [
        { ...payee, address: OTHER },
        { ...payee, status: 'retiring' },
      ];
    }
    return { ...rest, payload };
  }, current);
  proxy.tamper = (proxied, path, headers) => {
    if (path === '/x402/tts') isQuoted = true;
    rotates(proxied, path, headers);
  };
  const hasSigned = async (quoteFirst: boolean) => {
    const before = wallet.signed;
    const error = await challenged(directX402(wallet, { quoteFirst }))
      .speak(HELLO, { signal: AbortSignal.timeout(2000) })
      .catch((error) => error);
    return wallet.signed > before ? 'signed' : error.reason;
  };
  t.strictSame([await hasSigned(true), await hasSigned(false)], ['signed', 'wrong_payee']);
});

test('prepaid requests are signed with the chain and scheme of the metadata', async (t) => {
  const tampers: readonly (readonly [reason: string, path: string, value: unknown])[] = [
    ['wrong_network', 'payload.prepaid.authentication.chainId', 1],
    ['wrong_version', 'payload.prepaid.authentication.scheme', 'eip191'],
    ['wrong_version', 'payload.prepaid.authentication.headers', ['x-x402-account']],
    ['wrong_payee', 'payload.payment.payees.0.status', 'retiring'],
    ['unknown_model', 'payload.pricing.models', []],
  ];
  for (const [reason, path, value] of tampers) {
    await t.test(path, async (t) => {
      proxy.tamper = ofMetadata((document) => changed(document, path, value), current);
      const wallet = newWallet();
      const isUntrusted = (error: unknown) => error instanceof UntrustedError && error.reason === reason;
      await assert.rejects(challenged(prepaid(wallet)).speak(HELLO), isUntrusted);
      t.equal(wallet.signed, 0);
    });
  }
});

test('a wallet signs nothing for a service without a pinned key', async (t) => {
  proxy.tamper = undefined;
  const wallet = newWallet();
  for (const pay of [directX402(wallet), prepaid(wallet)]) {
    const client = challenged(pay, { trust: [] });
    await t.rejects(client.speak(HELLO), /option `trust` is missing/);
    await t.rejects(client.deposit(100_000n), /option `trust` is missing/);
  }
  t.equal(wallet.signed, 0);
});

test('a redirect is not followed, and nothing is signed', async (t) => {
  proxy.tamper = (proxied, path) => {
    if (path !== '/x402/tts') return;
    proxied.headers.set('location', gateway.url + path);
    Object.assign(proxied, { status: 307 });
  };
  const wallet = newWallet();
  await t.rejects(challenged(directX402(wallet)).speak(HELLO), { name: 'UnreachableError' });
  t.equal(wallet.signed, 0);
});
