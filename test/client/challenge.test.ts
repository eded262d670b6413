import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { directX402, prepaid, Speechgate, UntrustedError } from '../../src/client/index.ts';
import type { SigningKey } from '../../src/x402/signing-keys.ts';
import { countingWallet, pinsOf } from '../support/client.ts';
import { startGateway } from '../support/gateway.ts';
import { changed, type Lie, ofChallenge, ofMetadata, startLyingServer } from '../support/lying-server.ts';

const lying = await startLyingServer(t);
const gateway = await startGateway(t, { BASE_URL: lying.url });
lying.target = gateway.url;
const [current] = gateway.config.signingKeys as [SigningKey];
const OTHER = '0x00000000000000000000000000000000000000b2';
const HELLO = { text: 'Hello world' };
const newWallet = () => countingWallet(privateKeyToAccount(generatePrivateKey()));

/** Refused for this reason, with nothing signed and no payment sent. */
async function assertRefused(lie: Lie, reason: string, quoteFirst = false): Promise<void> {
  lying.lie = lie;
  lying.asked.length = 0;
  const wallet = newWallet();
  const pay = directX402(wallet, { quoteFirst });
  const client = new Speechgate({ baseUrl: lying.url, trust: pinsOf(gateway), pay });
  const isUntrusted = (error: unknown) => error instanceof UntrustedError && error.reason === reason;
  await assert.rejects(client.speak(HELLO), isUntrusted);
  if (!quoteFirst) await assert.rejects(client.deposit(100_000n), isUntrusted);
  assert.equal(wallet.signed, 0);
}

const LIES: readonly (readonly [what: string, reason: string, path: string, value: unknown])[] = [
  ['another payee', 'wrong_payee', 'accepts.0.payTo', OTHER],
  ['no payee', 'wrong_payee', 'accepts.0.payTo', undefined],
  ['another network', 'wrong_network', 'accepts.0.network', 'eip155:1'],
  ['another asset', 'wrong_asset', 'accepts.0.asset', OTHER],
  ['a higher price', 'wrong_price', 'accepts.0.amount', '100001'],
  ['a lower price', 'wrong_price', 'accepts.0.amount', '1'],
  ['no price', 'wrong_price', 'accepts.0.amount', undefined],
  ['another scheme', 'wrong_scheme', 'accepts.0.scheme', 'upto'],
  ['another token name', 'wrong_domain', 'accepts.0.extra.name', 'Other Coin'],
  ['another kind of transfer', 'wrong_domain', 'accepts.0.extra.assetTransferMethod', 'permit2'],
  ['no token domain', 'wrong_domain', 'accepts.0.extra', undefined],
  ['a year to settle', 'wrong_timeout', 'accepts.0.maxTimeoutSeconds', 31_536_000],
  ['another resource', 'wrong_origin', 'resource.url', 'http://b.example/x402/tts'],
  ['no resource', 'wrong_origin', 'resource', undefined],
  ['another version', 'malformed', 'x402Version', 1],
  ['no offer', 'malformed', 'accepts', []],
  ['no list of offers', 'malformed', 'accepts', {}],
  ['no payment identifier', 'malformed', 'extensions', {}],
  ['no extensions', 'malformed', 'extensions', null],
  ['a payment identifier that is none', 'malformed', 'extensions.payment-identifier', null],
  ['a payment identifier without info', 'malformed', 'extensions.payment-identifier.info', []],
  ['a payment identifier of another form', 'malformed', 'extensions.payment-identifier.schema', { const: 'a' }],
  ['a payment identifier that is given', 'malformed', 'extensions.payment-identifier.info.id', 'pay_0123456789abcdef'],
  ['nothing as its offer', 'malformed', 'accepts', [null]],
  ['nothing as its offers', 'malformed', 'accepts', null],
  ['nothing as its resource', 'wrong_origin', 'resource', null],
];

test('a challenge that asks for anything but the signed terms is refused before it is signed', async (t) => {
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
  for (const header of ['junk', 'bnVsbA==', 'W10=', 'NQ==']) {
    await t.test(`no challenge that can be read: ${header}`, () =>
      assertRefused(({ status, headers }) => {
        if (status === 402) headers.set('payment-required', header);
      }, 'malformed'),
    );
  }
});

test('of the extensions of a challenge, only the payment identifier goes into what is signed', async () => {
  let signed: Record<string, unknown> | undefined;
  const added = ofChallenge((challenge) => {
    changed(challenge, 'extensions.eip2612GasSponsoring', { info: { description: 'a' }, schema: {} });
    changed(challenge, 'accepts.0.note', 'a');
    return changed(challenge, 'memo', 'a');
  });
  lying.lie = (truth, path, headers) => {
    const payment = headers['payment-signature'];
    if (payment !== undefined) signed = JSON.parse(`${Buffer.from(payment, 'base64')}`);
    added(truth, path, headers);
  };
  const wallet = newWallet();
  const client = new Speechgate({ baseUrl: lying.url, trust: pinsOf(gateway), pay: directX402(wallet), patienceMs: 0 });
  await client.speak(HELLO).catch(() => {});
  assert.equal(wallet.signed, 1);
  const { extensions, accepted, ...rest } = signed as { extensions: object; accepted: object };
  assert.deepEqual(Object.keys(extensions), ['payment-identifier']);
  assert.ok(!('note' in accepted) && !('memo' in rest));
});

test('a quote that asks for anything but the signed terms is refused, and a challenge that asks for more than its quote', async (t) => {
  const lies: readonly (readonly [what: string, reason: string, path: string, value: unknown])[] = [
    ['a higher price', 'wrong_price', 'amountMicroUsd', 199],
    ['another payee', 'wrong_payee', 'payTo', OTHER],
    ['another network', 'wrong_network', 'network', 'eip155:1'],
    ['another model', 'wrong_price', 'model', 'provider-a/tts-1-hd'],
    ['another text', 'wrong_price', 'textSha256', '0'.repeat(64)],
  ];
  for (const [what, reason, path, value] of lies) {
    const lie: Lie = (truth, asked) => {
      if (asked === '/x402/tts/quote') changed(truth.json, path, value);
    };
    await t.test(what, async () => {
      await assertRefused(lie, reason, true);
      assert.ok(!lying.asked.includes('/x402/tts'));
      const client = new Speechgate({ baseUrl: lying.url, trust: pinsOf(gateway) });
      await assert.rejects(client.quote(HELLO), UntrustedError);
    });
  }
  await t.test('more than its quote', () =>
    assertRefused(
      ofChallenge((challenge) => changed(challenge, 'accepts.0.amount', '199')),
      'wrong_price',
      true,
    ),
  );
});

test('a payee that retires is paid where the quote names it, and in no other challenge', async () => {
  lying.lie = undefined;
  const wallet = newWallet();
  const pay = (quoteFirst: boolean) =>
    new Speechgate({ baseUrl: lying.url, trust: pinsOf(gateway), pay: directX402(wallet, { quoteFirst }) });
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
  lying.lie = (truth, path, headers) => {
    if (path === '/x402/tts') isQuoted = true;
    rotates(truth, path, headers);
  };
  const hasSigned = async (quoteFirst: boolean) => {
    const before = wallet.signed;
    const error = await pay(quoteFirst)
      .speak(HELLO, { signal: AbortSignal.timeout(2000) })
      .catch((error) => error);
    return wallet.signed > before ? 'signed' : error.reason;
  };
  assert.equal(await hasSigned(true), 'signed');
  assert.equal(await hasSigned(false), 'wrong_payee');
});

test('prepaid requests are signed for the chain and by the scheme of the signed metadata', async (t) => {
  const lies: readonly (readonly [reason: string, path: string, value: unknown])[] = [
    ['wrong_network', 'payload.prepaid.authentication.chainId', 1],
    ['wrong_version', 'payload.prepaid.authentication.scheme', 'eip191'],
    ['wrong_version', 'payload.prepaid.authentication.headers', ['x-x402-account']],
    ['wrong_payee', 'payload.payment.payees.0.status', 'retiring'],
    ['unknown_model', 'payload.pricing.models', []],
  ];
  for (const [reason, path, value] of lies) {
    await t.test(path, async () => {
      lying.lie = ofMetadata((document) => changed(document, path, value), current);
      const wallet = newWallet();
      const client = new Speechgate({ baseUrl: lying.url, trust: pinsOf(gateway), pay: prepaid(wallet) });
      const isUntrusted = (error: unknown) => error instanceof UntrustedError && error.reason === reason;
      await assert.rejects(client.speak(HELLO), isUntrusted);
      assert.equal(wallet.signed, 0);
    });
  }
});

test('a wallet signs nothing for a service whose key is not pinned', async () => {
  lying.lie = undefined;
  const wallet = newWallet();
  for (const pay of [directX402(wallet), prepaid(wallet)]) {
    const client = new Speechgate({ baseUrl: lying.url, pay });
    await assert.rejects(client.speak(HELLO), /pinned/);
    await assert.rejects(client.deposit(100_000n), /pinned/);
  }
  assert.equal(wallet.signed, 0);
});

test('a redirect is not followed, whoever asks for it', async () => {
  lying.lie = (truth, path) => {
    if (path !== '/x402/tts') return;
    truth.headers.set('location', gateway.url + path);
    Object.assign(truth, { status: 307 });
  };
  const wallet = newWallet();
  const client = new Speechgate({ baseUrl: lying.url, trust: pinsOf(gateway), pay: directX402(wallet) });
  await assert.rejects(client.speak(HELLO), { name: 'UnreachableError' });
  assert.equal(wallet.signed, 0);
});
