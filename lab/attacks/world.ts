import { createHash } from 'node:crypto';
import type { PaymentPayload, SettleResponse } from '@x402/core/types';
import type { Test } from 'tap';
import type { Address, LocalAccount } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { ASSET, type ChainClient } from '../../src/sandbox/chain/chain-client.ts';
import { usdCoinAbi, usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { included, type TestChain } from '../../test/support/chain.ts';
import { mineSteadily } from '../../test/support/deposit.ts';
import { testFacilitator } from '../../test/support/facilitator.ts';
import type { FaultSource, SettleFault, VerifyFault } from '../../test/support/facilitator-faults.ts';
import type { FaultyFacilitator } from '../../test/support/faulty-facilitator.ts';
import { body, type Mode, silentMp3, startStubUpstream } from '../../test/support/stub-upstream.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';

const BLOCK_MS = 1_000;
const ETHER = 10_000n * 10n ** 18n;
const TAG_BYTES = 32;

/** Parts that all targets share. They end with the test. */
export interface World {
  readonly t: Test;
  readonly chain: TestChain;
  readonly facilitator: FaultyFacilitator & { readonly plans: Plans };
  /** Ends in `/v1`. */
  readonly upstreamUrl: string;
  /** How the speech server treats a text. Others are spoken at once. */
  readonly manners: Map<string, Mode>;
  readonly folder: string;
}

/** Silence with the text's hash in the last frame, so that the audio identifies its text. */
export function audioOf(text: string): Buffer {
  const audio = Buffer.from(silentMp3(480));
  createHash('sha256')
    .update(text)
    .digest()
    .copy(audio, audio.length - TAG_BYTES);
  return audio;
}

const speak: Mode = (request, response) => body(audioOf(String(request.body?.input)))(request, response);

/** Waits, then speaks. */
export const speakAfter =
  (wait: () => Promise<unknown>): Mode =>
  (request, response) =>
    void wait().then(() => speak(request, response));

/** Starts facilitator and speech server beside a chain. */
export async function openWorld(t: Test, chain: TestChain): Promise<World> {
  mineSteadily(t, chain, BLOCK_MS);
  const plans = new Plans();
  const privateKey = generatePrivateKey();
  const facilitator = await testFacilitator(t, chain, { privateKey, faults: plans });
  await chain.client.setBalance({ address: privateKeyToAccount(privateKey).address, value: ETHER });
  const manners = new Map<string, Mode>();
  const upstream = await startStubUpstream({
    mode: (request, response) => {
      // A run has too many to keep.
      upstream.requests.length = 0;
      (manners.get(String(request.body?.input)) ?? speak)(request, response);
    },
  });
  t.teardown(() => upstream.close());
  const folder = await temporaryFolder(t);
  return { t, chain, facilitator: { ...facilitator, plans }, upstreamUrl: upstream.url, manners, folder };
}

type Told<Fault> = (payment: PaymentPayload) => Fault | undefined | Promise<Fault | undefined>;

/** What the facilitator does at the first verification and the first settlement of a payment. */
export interface Plan {
  readonly verify?: Told<VerifyFault>;
  readonly settle?: Told<SettleFault>;
}

/** The authorization's nonce identifies a payment even if other fields differ. */
export const nonceOf = (payment: PaymentPayload): string =>
  String((payment.payload as { authorization?: { nonce?: string } }).authorization?.nonce).toLowerCase();

/** Faults by payment, so that concurrent payments can each have their own. */
export class Plans implements FaultSource {
  readonly #verify = new Map<string, Told<VerifyFault>>();
  readonly #settle = new Map<string, Told<SettleFault>>();

  set(payment: PaymentPayload, { verify, settle }: Plan): void {
    if (verify) this.#verify.set(nonceOf(payment), verify);
    if (settle) this.#settle.set(nonceOf(payment), settle);
  }

  nextVerify(payment: PaymentPayload) {
    return take(this.#verify, payment)?.(payment);
  }

  nextSettle(payment: PaymentPayload) {
    return take(this.#settle, payment)?.(payment);
  }
}

function take<Fault>(plans: Map<string, Told<Fault>>, payment: PaymentPayload): Told<Fault> | undefined {
  const nonce = nonceOf(payment);
  const plan = plans.get(nonce);
  plans.delete(nonce);
  return plan;
}

/** Settles, runs `then`, and only then responds. */
export const settledBefore = (then: () => Promise<unknown>): SettleFault => ({
  broadcast: true,
  answer: async (settled) => {
    await then();
    return settled as SettleResponse;
  },
});

export interface Payment {
  readonly payer: Address;
  readonly value: bigint;
}

/** Transfers to the payee since a block, in micro-USDC. */
export async function paidTo(client: ChainClient, payee: Address, fromBlock: bigint): Promise<readonly Payment[]> {
  const logs = await client.getContractEvents({
    ...{ address: ASSET, abi: usdCoinAbi, eventName: 'Transfer', args: { to: payee }, fromBlock },
  });
  return logs.map(({ args }) => ({ payer: args.from as Address, value: args.value as bigint }));
}

/** Moves the wallet's balance away, except `keeps` micro-USDC. */
export async function drain(client: ChainClient, wallet: LocalAccount, keeps = 0n): Promise<void> {
  const balance = await usdcBalance(client, wallet.address);
  const sent = client.writeContract({
    ...{ account: wallet, address: ASSET, abi: usdCoinAbi, functionName: 'transfer' },
    args: ['0x000000000000000000000000000000000000dEaD', balance - keeps],
  });
  await included(client, sent);
}
