import { type Test, t, test } from 'tap';
import { cardCredits as byCard, Speechgate as CardClient } from '../../../src/callers/client/card.ts';
import {
  AudioLostError,
  cardCredits,
  directX402,
  type PaymentWay,
  prepaid,
  type Speech,
  Speechgate,
} from '../../../src/callers/client/index.ts';
import { testChain, wallet } from '../../support/chain.ts';
import { pinsOf } from '../../support/client.ts';
import { CUTS, type Cut, nameOf, startCuttingProxy } from '../../support/cutting-proxy.ts';
import { mineSteadily } from '../../support/deposit.ts';
import { mp3, silentMp3 } from '../../support/stub-upstream.ts';
import { PRICE, startX402Gateway, timesPaid } from '../../support/x402.ts';

const { chain, skip } = await testChain();
const HELLO = { text: 'Hello world' };
const AUDIO = new Uint8Array(silentMp3(1000));
const proxy = await startCuttingProxy(t);
const gateway = skip ? undefined : await startX402Gateway(t, chain, { BASE_URL: proxy.url }, { worker: true });
if (gateway) proxy.target = gateway.url;
const open = (pay: PaymentWay) => new Speechgate({ baseUrl: proxy.url, pay, trust: gateway ? pinsOf(gateway) : [] });

/** The client of the package's entry for pages. */
const openCardClient = async () =>
  new CardClient({ baseUrl: proxy.url, pay: byCard((await gateway?.fund(500)) as string) });

/** Buys with the connection cut at a point, while the provider waits for that where it is cut at work. */
async function buyCut(marker: string, cut: Cut, buy: () => Promise<Speech>): Promise<Speech> {
  const { upstream } = gateway as NonNullable<typeof gateway>;
  const broken = proxy.cutNext(marker, cut, upstream.waitForRequests(upstream.requests.length + 1));
  upstream.mode = (request, response) => {
    void (cut.at === 'working' ? broken : Promise.resolve()).then(() => mp3()(request, response));
  };
  const speech = await buy();
  await broken;
  return speech;
}

/** Who buys, the header of their request, and what was taken from them, in micro-USD. */
const BUYERS = {
  direct: async () => {
    const payer = await wallet(chain.client, 1_000_000n);
    const client = open(directX402(payer));
    const taken = async () => PRICE * BigInt(await timesPaid(chain, payer));
    return { marker: 'payment-signature', buy: () => client.speak(HELLO), taken };
  },
  prepaid: async (t: Test) => {
    const client = open(prepaid(await wallet(chain.client, 1_000_000n)));
    const stop = mineSteadily(t, chain);
    const { balanceMicroUsd } = await client.deposit(100_000n);
    stop();
    const taken = async () => balanceMicroUsd - (await client.balance()).balanceMicroUsd;
    return { marker: 'x-x402-signature', buy: () => client.speak(HELLO), taken };
  },
  'card, durable': async () => {
    const client = open(cardCredits((await gateway?.fund(500)) as string));
    const taken = async () => 5_000_000n - (await client.balance()).balanceMicroUsd;
    return { marker: 'idempotency-key', buy: () => client.speak(HELLO, { durable: true }), taken };
  },
  'card client, durable': async () => {
    const client = await openCardClient();
    const taken = async () => 5_000_000n - (await client.balance()).balanceMicroUsd;
    return { marker: 'idempotency-key', buy: () => client.speak(HELLO, { durable: true }), taken };
  },
};

for (const [flow, startBuyer] of Object.entries(BUYERS)) {
  test(`${flow}: a request cut at any point is charged once and gets its audio`, { skip }, async (t) => {
    const { marker, buy, taken } = await startBuyer(t);
    for (const [at, cut] of CUTS.entries()) {
      await t.test(nameOf(cut), async (t) => {
        // A job's request is answered before the provider is asked.
        const isEarly = marker === 'idempotency-key' && cut.at === 'working';
        const speech = await buyCut(marker, isEarly ? { at: 'sent' } : cut, buy);
        t.strictSame(await speech.bytes(), AUDIO);
        t.equal(speech.receipt.chargedMicroUsd, PRICE);
        t.equal(await taken(), PRICE * BigInt(at + 1));
      });
    }
  });
}

test('card, streamed: a request cut at any point is charged at most once', { skip }, async (t) => {
  const { upstream } = gateway as NonNullable<typeof gateway>;
  const asked = upstream.requests.length;
  for (const cut of CUTS) {
    await t.test(nameOf(cut), async (t) => {
      // Of its own: the service may still be at work on the request that was cut before.
      for (const client of [open(cardCredits((await gateway?.fund(500)) as string)), await openCardClient()]) {
        const bytes = await buyCut('x-credit-account', cut, () => client.speak(HELLO)).then(
          (speech) => speech.bytes().catch((error) => error),
          (error) => error,
        );
        if (cut.at === 'answered') t.strictSame(bytes, AUDIO);
        else t.ok(bytes instanceof AudioLostError, String(bytes));
        t.ok(5_000_000n - (await client.balance()).balanceMicroUsd <= PRICE);
      }
    });
  }
  t.ok(upstream.requests.length <= asked + 2 * CUTS.length);
});

test('deposit: a request cut at any point is paid once and credited once', { skip }, async (t) => {
  const payer = await wallet(chain.client, 10_000_000n);
  const client = open(prepaid(payer));
  mineSteadily(t, chain);
  for (const [at, cut] of CUTS.entries()) {
    await t.test(nameOf(cut), async (t) => {
      const broken = proxy.cutNext('payment-signature', cut);
      const { balanceMicroUsd } = await client.deposit(100_000n);
      await broken;
      t.equal(balanceMicroUsd, 100_000n * BigInt(at + 1));
      t.equal(await timesPaid(chain, payer), at + 1);
    });
  }
});
