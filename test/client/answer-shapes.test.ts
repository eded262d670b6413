/** An answer that is not what was asked for is a typed error, whatever it is; nothing is signed by it. */
import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { cardCredits, prepaid, Speechgate, SpeechgateError, UntrustedError } from '../../src/client/index.ts';
import { countingWallet, errorOf, pinsOf } from '../support/client.ts';
import { changed, type Lie, startLyingServer } from '../support/lying-server.ts';
import { startPrepaidGateway } from '../support/prepaid.ts';

const HELLO = { text: 'Hello world' };
const lying = await startLyingServer(t);
const gateway = await startPrepaidGateway(t, { BASE_URL: lying.url });
lying.target = gateway.url;
const wallet = countingWallet(privateKeyToAccount(generatePrivateKey()));
const account = await gateway.fund(500);
const card = new Speechgate({ baseUrl: lying.url, pay: cardCredits(account), patienceMs: 0 });
const payer = new Speechgate({ baseUrl: lying.url, trust: pinsOf(gateway), pay: prepaid(wallet), patienceMs: 0 });

/** Answers so, where the path begins so. */
const says =
  (begin: string, json: unknown): Lie =>
  (truth, path) => {
    if (!path.startsWith(begin)) return;
    Object.assign(truth, { status: 200, raw: JSON.stringify(json) });
    truth.headers.set('content-type', 'application/json');
  };

const GARBAGE: readonly unknown[] = [null, 5, 'a', true, [], [null], {}, { models: null }, { models: [null] }];

/** What is read, and where. */
const READINGS: readonly (readonly [what: string, path: string, read: () => Promise<unknown>])[] = [
  ['models', '/tts/models', () => card.models()],
  ['voices', '/tts/voices', () => card.voices()],
  ['a purchase', '/tts/models', () => new Speechgate({ baseUrl: lying.url, pay: cardCredits(account) }).speak(HELLO)],
  ['a quote', '/x402/tts/quote', () => card.quote(HELLO)],
  ['a credit balance', '/credits/', () => card.balance()],
  ['a top-up', '/top-up/status', () => card.topUpStatus(account)],
  ['a prepaid balance', '/x402/accounts/', () => payer.balance()],
  ['metadata', '/.well-known/', () => new Speechgate({ baseUrl: lying.url, trust: pinsOf(gateway) }).metadata()],
  ['a deposit', '/x402/deposit', () => payer.deposit(100_000n)],
  ['feedback', '/feedback/challenge', () => payer.feedback(wallet, { message: 'a', category: 'bug' })],
];

for (const [what, path, read] of READINGS) {
  test(`garbage instead of ${what} is a typed error`, async () => {
    for (const json of GARBAGE) {
      lying.lie = says(path, json);
      const error = await errorOf(read());
      assert.ok(error instanceof SpeechgateError, `${JSON.stringify(json)}: ${error.stack}`);
    }
    lying.lie = undefined;
  });
}

test('amounts that are none are refused, and the answer is told with its place', async () => {
  for (const amount of [null, -1, 1.5, '5', 1e300, {}]) {
    lying.lie = (truth, path) => {
      if (path.startsWith('/credits/')) changed(truth.json, 'balanceMicroUsd', amount);
    };
    const error = await errorOf(card.balance());
    assert.ok(error instanceof UntrustedError, String(error));
    assert.match(error.message, /balanceMicroUsd is no amount/);
  }
});

const NOTHING_SIGNED = 'Nothing was signed';

test('feedback signs the text that is built here, and no other', async () => {
  const signer = countingWallet(privateKeyToAccount(generatePrivateKey()));
  const feedback = { message: 'a', category: 'bug' } as const;
  const other = { ...feedback, message: 'b' };
  const lies: readonly ((text: string) => string)[] = [
    (text) => `${text}\nI owe you everything.`,
    (text) => text.replace('It costs nothing and allows no payment.', 'I agree.'),
    (text) => text.replace(/ feedback to .*\./, ' feedback to a.\n\nAnd I owe you everything.'),
    (text) => text.replace(lying.url, 'https://bank.example'),
    (text) => text.replace('Category: bug', 'Category: other'),
    (text) => text.replace(/0x[0-9a-f]{40}/, `0x${'1'.repeat(40)}`),
    (text) => text.replace(/Nonce: .*/, 'Nonce: a b'),
    (text) => text.replace(/Expires: .*/, 'Expires: never'),
  ];
  for (const lie of lies) {
    lying.lie = (truth, path) => {
      if (path === '/feedback/challenge') truth.json.signingMessage = lie(truth.json.signingMessage);
    };
    const error = await errorOf(payer.feedback(signer, feedback));
    assert.ok(error instanceof UntrustedError && error.reason === 'wrong_message', String(error));
    assert.ok(error.message.includes(NOTHING_SIGNED));
  }
  lying.lie = (truth, path) => {
    if (path === '/feedback/challenge') truth.json.nonce = 'a\nb';
  };
  assert.ok((await errorOf(payer.feedback(signer, feedback))) instanceof UntrustedError);
  assert.equal(signer.signed, 0);
  lying.lie = undefined;
  assert.ok((await payer.feedback(signer, other)).feedbackId);
  assert.equal(signer.signed, 1);
});

for (const [what, link] of [
  ['another scheme', 'x:.evil.example/a'],
  ['another scheme with a path', 'data:@evil.example/a'],
  ['no link', 'a'],
  ['nothing', null],
  ['an object', {}],
] as const) {
  test(`audio is fetched from the client's own origin only: ${what}`, async () => {
    const asked: string[] = [];
    const send: typeof fetch = (request, init) => {
      asked.push(new URL((request as Request).url).origin);
      return fetch(request, init);
    };
    lying.lie = (truth, path) => {
      if (!path.startsWith('/tts/jobs/')) return;
      truth.json = { jobId: 'a', status: 'completed', traceId: 'a', links: { audio: link } };
    };
    const client = new Speechgate({ baseUrl: lying.url, pay: cardCredits(account), patienceMs: 0, fetch: send });
    assert.ok((await errorOf(client.speak(HELLO, { durable: true }))) instanceof SpeechgateError);
    assert.deepEqual([...new Set(asked)], [lying.url]);
  });
}
