import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { cardCredits, directX402, Speechgate, SpeechgateError, UntrustedError } from '../../src/client/index.ts';
import { countingWallet, pinsOf } from '../support/client.ts';
import { startGateway } from '../support/gateway.ts';
import { changed, startLyingServer } from '../support/lying-server.ts';

const lying = await startLyingServer(t);
const gateway = await startGateway(t, { BASE_URL: lying.url });
lying.target = gateway.url;
const baseUrl = lying.url;

test('a quote sends length and digest of the trimmed text, and never the text', async () => {
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
  assert.equal(quote.amountMicroUsd, BigInt(text.length * 18));
  assert.deepEqual([quote.textLength, quote.speed], [text.length, 1.5]);
  assert.equal(quote.textSha256, createHash('sha256').update(text).digest('hex'));
  assert.ok(bodies.some((body) => body.includes(quote.textSha256)));
  assert.ok(!bodies.some((body) => body.includes('Osten')));
});

test('models and voices are those of the catalog', async () => {
  const client = new Speechgate({ baseUrl });
  const { models, defaultModel } = await client.models();
  assert.deepEqual(
    models.map(({ id }) => id),
    ['provider-a/tts-1', 'provider-a/tts-1-hd'],
  );
  const { model, voices } = await client.voices();
  assert.equal(model, defaultModel);
  assert.ok(voices.length > 0);
  assert.equal((await client.voices('provider-a/tts-1-hd')).model, 'provider-a/tts-1-hd');
});

test('credit: the link to buy it, its status, and an account that does not exist', async () => {
  const account = await gateway.fund(500);
  const client = new Speechgate({ baseUrl, pay: cardCredits(account) });
  assert.equal(client.topUpLink(), `${baseUrl}/top-up`);
  assert.equal(client.topUpLink({ amountCents: 700, account }), `${baseUrl}/top-up?amount=700&account=${account}`);
  assert.equal((await client.topUpStatus(account)).status, 'active');
  assert.equal((await client.topUpStatus('3b241101-e2bb-4255-8caf-4136c566a962')).status, 'not_found');
  assert.equal((await client.balance()).balanceMicroUsd, 5_000_000n);
});

test('feedback is signed by the wallet, and nothing else that the service may want to be signed', async () => {
  const wallet = countingWallet(privateKeyToAccount(generatePrivateKey()));
  const client = new Speechgate({ baseUrl });
  const feedback = { message: 'The voices are fine. ', category: 'other', details: { agent: 'a test' } } as const;
  const { feedbackId, notification } = await client.feedback(wallet, feedback);
  assert.match(feedbackId, /^[0-9a-f-]{36}$/);
  assert.equal(notification, 'not_configured');
  assert.equal(wallet.signed, 1);

  for (const message of [
    'I own this wallet, says b.example',
    'Sign this message to send your feedback of another kind',
  ]) {
    lying.lie = (truth, path) => {
      if (path === '/feedback/challenge') changed(truth.json, 'signingMessage', message);
    };
    await assert.rejects(client.feedback(wallet, feedback), UntrustedError);
  }
  lying.lie = undefined;
  assert.equal(wallet.signed, 1);
});

test('what is said wrongly is told in words', async () => {
  assert.throws(() => new Speechgate({ baseUrl: `${baseUrl}/v1` }), TypeError);
  assert.throws(() => new Speechgate({ baseUrl: 'b.example' }), TypeError);
  const client = new Speechgate({ baseUrl });
  await assert.rejects(client.speak({ text: 'Hello world' }), SpeechgateError);
  await assert.rejects(client.deposit(100_000n), SpeechgateError);
  await assert.rejects(client.metadata(), SpeechgateError);
  const wallet = privateKeyToAccount(generatePrivateKey());
  await assert.rejects(new Speechgate({ baseUrl, pay: directX402(wallet) }).balance(), /on the chain/);
});

test('http is only for this machine unless it is allowed', async () => {
  for (const [url, isAllowed, isTaken] of [
    ['https://speech.example', false, true],
    ['http://127.0.0.1:8080', false, true],
    ['http://127.9.9.9', false, true],
    ['http://localhost:8080', false, true],
    ['http://[::1]:8080', false, true],
    ['http://speech.example', false, false],
    ['http://10.0.0.1', false, false],
    ['http://gateway:8080', false, false],
    ['http://localhost.example', false, false],
    ['http://127.0.0.1.example', false, false],
    ['http://[::ffff:10.0.0.1]', false, false],
    ['http://gateway:8080', true, true],
    ['ws://gateway:8080', true, false],
  ] as const) {
    const open = () => new Speechgate({ baseUrl: url, allowInsecureHttp: isAllowed });
    if (isTaken) assert.doesNotThrow(open, url);
    else assert.throws(open, TypeError, url);
  }
});

test('a service that can not be reached is told as such, and its own faults as its own', async () => {
  await assert.rejects(new Speechgate({ baseUrl: 'http://127.0.0.1:1' }).models(), { name: 'UnreachableError' });
  lying.lie = (truth) => {
    Object.assign(truth, { status: 503, json: { anything: 'else' } });
  };
  const error = await new Speechgate({ baseUrl }).models().catch((error) => error);
  lying.lie = undefined;
  assert.deepEqual([error.name, error.status, error.code], ['ServiceUnavailableError', 503, 'UNKNOWN']);
});
