/** A caller's program, which is compiled against the installed package: what it marks as wrong has to be refused there. */
import { type FileBudget, openFileBudget } from 'speechgate/budget';
import {
  type Budget,
  cardCredits,
  directX402,
  OutcomeUnknownError,
  OverCapError,
  type PendingPurchase,
  type PinnedKey,
  prepaid,
  type Speech,
  Speechgate,
  type Wallet,
} from 'speechgate/client';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';

const baseUrl = 'https://speech.example';
const account = privateKeyToAccount(generatePrivateKey());
const trust: PinnedKey[] = [{ keyId: 'k', publicKeyJwk: { kty: 'EC', crv: 'P-256', x: 'x', y: 'y' } }];
const budget: Budget = { reserve: async () => ({ record: async () => {}, settle: async () => {} }) };
const kept: FileBudget = await openFileBudget('budget.jsonl', { perDayMicroUsd: 1_000_000n });
const injected: Wallet = { address: account.address, signTypedData: (typedData) => account.signTypedData(typedData) };

export const clients = [
  new Speechgate({ baseUrl, pay: cardCredits('an account'), maxTotalMicroUsd: 1_000n }),
  new Speechgate({ baseUrl, pay: directX402(account, { quoteFirst: true }), trust, budget }),
  new Speechgate({ baseUrl, pay: prepaid(injected), trust, budget: kept, fetch }),
];

export async function speak(client: Speechgate): Promise<Speech> {
  try {
    const speech = await client.speak({ text: 'Hello', speed: 1.5 }, { durable: true, maxMicroUsd: 10_000n });
    const charged: bigint = speech.receipt.chargedMicroUsd;
    const audio: ReadableStream<Uint8Array> = speech.audio;
    return charged > 0n && audio.locked ? speech : speech;
  } catch (error) {
    if (error instanceof OverCapError && error.leftMicroUsd > 0n) throw error;
    if (!(error instanceof OutcomeUnknownError)) throw error;
    const pending: PendingPurchase = JSON.parse(JSON.stringify(error.pending));
    return client.resume(pending);
  }
}

export async function look(client: Speechgate): Promise<string[]> {
  const { models } = await client.models();
  const { balanceMicroUsd } = await client.balance();
  const { payment } = await client.metadata();
  return [...models.map(({ id }) => id), ...payment.payees.map(({ address }) => address), String(balanceMicroUsd)];
}

// @ts-expect-error: amounts are bigints.
await new Speechgate({ baseUrl }).deposit(100_000);
// @ts-expect-error: an order has a text.
await new Speechgate({ baseUrl }).speak({ voice: 'alloy' });
// @ts-expect-error: a flow is a way to pay, not its name.
new Speechgate({ baseUrl, pay: 'card' });
