import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PaymentRequired } from '@x402/core/types';
import type { LocalAccount } from 'viem';
import type { TestCheckout } from '../../test/support/checkout.ts';
import type { Call } from '../../test/support/gateway.ts';
import { domainOf, withCredential } from '../../test/support/prepaid.ts';
import { decodeHeader, sign, withPayment } from '../../test/support/x402.ts';
import { type Answered, type Diary, isPassing } from './ask.ts';

/** Price of one request for speech in micro-USD. */
const PRICE = 198n;
const PURCHASE_CENTS = 500;
const HELLO: Call = { method: 'POST', json: { text: 'Hello world' } };
/** The upstream speaks this text slowly. It has the same price. */
export const SLOW_TEXT = 'Hello waves';
const JOB_MS = 120_000;

/** A payer, and the charges that responses confirmed. */
export interface Payer {
  /** A card account's id, or an address in lower case. */
  readonly id: string;
  told: bigint;
  /** Sum of requests without a final response: each may be charged or not. */
  doubts: bigint;
}

export interface World {
  readonly url: string;
  readonly payTo: `0x${string}`;
  readonly checkout: TestCheckout;
  readonly diary: Diary;
}

export type Turn = () => Promise<void>;

/** Speech paid by card, buffered or streamed. An error means no charge, so the caller does not retry. */
export const cardTurn =
  (world: World, payer: Payer, text = 'Hello world'): Turn =>
  async () => {
    const { diary, url } = world;
    const flow = text === SLOW_TEXT ? 'card, streamed' : 'card';
    const answer = await diary.ask(flow, `${url}/tts?text=${encodeURIComponent(text)}`, {
      headers: { 'x-credit-account': payer.id },
    });
    if (answer.status === 200) payer.told += PRICE;
  };

/** Submits a job with an idempotency key until it is accepted, then polls it until it ends. */
export const jobTurn =
  (world: World, payer: Payer): Turn =>
  async () => {
    const { diary, url } = world;
    const call = { ...HELLO, headers: { 'x-credit-account': payer.id, 'idempotency-key': randomUUID() } };
    const accepted = await diary.persist('job', `${url}/tts?async=true`, call);
    if (accepted?.status !== 202) return doubt(payer, accepted);
    const { jobId } = JSON.parse(accepted.text);
    for (const giveUpAt = performance.now() + JOB_MS; performance.now() < giveUpAt; await sleep(200)) {
      const asked = await diary.ask('job, asked for', `${url}/tts/jobs/${jobId}`);
      // A failover with lost commits also lost the job and its charge.
      if (asked.status === 404) return;
      const status = asked.status === 200 ? JSON.parse(asked.text).status : undefined;
      if (status === 'completed') payer.told += PRICE;
      if (status === 'completed' || status === 'failed') return;
    }
    doubt(payer, undefined);
  };

/** Buys credit. The buyer reloads the page on errors. @returns the account on the page, or undefined */
export async function buy({ diary, url, checkout }: World): Promise<string | undefined> {
  const opened = await diary.persist('top-up', `${url}/top-up`, {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: `amount=${PURCHASE_CENTS}`,
  });
  if (opened?.status !== 303) throw new Error(`the checkout did not open: ${opened?.status} ${opened?.text}`);
  const back = new URL(await checkout.pay(opened.headers.get('location') ?? ''));
  const done = await diary.persist('top-up, completed', `${url}${back.pathname}${back.search}`, {});
  if (done?.status !== 200) return undefined;
  return /[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/.exec(done.text)?.[0];
}

/** Collects accounts whose page confirmed the credit. */
export const topUpTurn =
  (world: World, credited: string[]): Turn =>
  async () => {
    const account = await buy(world);
    if (account !== undefined) credited.push(account);
  };

/** Requests a challenge and pays it. Retries the same payment until it is settled or refused. */
const x402Turn =
  (
    world: World,
    flow: string,
    path: string,
    call: Call,
    wallet: LocalAccount,
    paid: (answer: Answered | undefined) => void,
  ): Turn =>
  async () => {
    const { diary, url } = world;
    const asked = await diary.persist(`${flow}, challenge`, url + path, call);
    if (asked?.status !== 402) throw new Error(`no challenge: ${asked?.status} ${asked?.text}`);
    const challenge: PaymentRequired = decodeHeader(asked.headers.get('payment-required'));
    paid(await diary.persist(flow, url + path, withPayment(call, await sign(wallet, challenge))));
  };

export const directTurn = (world: World, wallet: LocalAccount, payer: Payer): Turn =>
  x402Turn(world, 'direct', '/x402/tts', HELLO, wallet, (answer) => {
    if (answer?.status === 200) payer.told += PRICE;
    else doubt(payer, answer);
  });

/** @param amount in micro-USD */
export const depositTurn = (world: World, wallet: LocalAccount, payer: Payer, amount: bigint): Turn => {
  const call = { method: 'POST', json: { amountMicroUsd: Number(amount) } };
  return x402Turn(world, 'deposit', '/x402/deposit', call, wallet, (answer) => {
    if (answer?.status === 200) payer.told += amount;
    else doubt(payer, answer, amount);
  });
};

/** After an error or a lost response, retries the same request, which is charged at most once. */
export const prepaidTurn =
  (world: World, wallet: LocalAccount, payer: Payer): Turn =>
  async () => {
    const { diary, url, payTo } = world;
    const call = await withCredential(wallet, domainOf(payTo), '/x402/tts', HELLO);
    const first = await diary.ask('prepaid', `${url}/x402/tts`, call);
    if (first.status === 200) payer.told += PRICE;
    else if (isPassing(first)) {
      await sleep(500);
      const second = await diary.persist('prepaid, repeated', `${url}/x402/tts`, call);
      if (second?.status === 200) payer.told += PRICE;
      // The first response may have started, and been charged or refunded.
      else if (first.status === 0) payer.doubts += PRICE;
    }
  };

/** Counts a request whose payment has no known outcome. */
function doubt(payer: Payer, answer: Answered | undefined, amount = PRICE): void {
  if (!answer || answer.status === 0 || answer.text.includes('"state":"unknown"')) payer.doubts += amount;
}
