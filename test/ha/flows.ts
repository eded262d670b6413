import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PaymentRequired } from '@x402/core/types';
import type { LocalAccount } from 'viem';
import type { TestCheckout } from '../support/checkout.ts';
import type { Call } from '../support/gateway.ts';
import { domainOf, withCredential } from '../support/prepaid.ts';
import { decodeHeader, sign, withPayment } from '../support/x402.ts';
import { type Answered, type Diary, isPassing } from './ask.ts';

/** Micro-USD of one request for speech. */
const PRICE = 198n;
const PURCHASE_CENTS = 500;
const HELLO: Call = { method: 'POST', json: { text: 'Hello world' } };
/** The upstream takes its time over this one, which costs the same. */
export const SLOW_TEXT = 'Hello waves';
const JOB_MS = 120_000;

/** Somebody who pays, and what he was told that it cost him. */
export interface Payer {
  /** A card account's id, or an address in lower case. */
  readonly id: string;
  told: bigint;
  /** Who was told nothing in the end: each may have been charged or not. */
  doubts: bigint;
}

/** What the callers of all flows work with. */
export interface World {
  readonly url: string;
  readonly payTo: `0x${string}`;
  readonly checkout: TestCheckout;
  readonly diary: Diary;
}

/** One turn of a caller. */
export type Turn = () => Promise<void>;

/** Speech paid by card, whole or streamed. An error means that nothing was charged; the caller asks anew. */
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

/** A job with a key, repeated until it is accepted, and asked for until it has ended. */
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
      const status = asked.status === 200 ? JSON.parse(asked.text).status : undefined;
      if (status === 'completed') payer.told += PRICE;
      if (status === 'completed' || status === 'failed') return;
    }
    doubt(payer, undefined);
  };

/** A purchase of credit. The buyer loads the page again when it failed. Tells the account when the page has. */
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

/** Purchases of which the page has said that they are credited. */
export const topUpTurn =
  (world: World, credited: string[]): Turn =>
  async () => {
    const account = await buy(world);
    if (account !== undefined) credited.push(account);
  };

/** The challenge and a payment of it, repeated as it is until it is settled or refused. */
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

/**
 * A signed request. After an error or no answer the same one is repeated, whose answer tells whether it was charged:
 * 409 when the nonce is spent, and then the balance tells.
 */
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
      // Within the audio the answer may have come, or be given back.
      else if (first.status === 0) payer.doubts += PRICE;
    }
  };

/** Who was told neither that he paid nor that he did not. */
function doubt(payer: Payer, answer: Answered | undefined, amount = PRICE): void {
  if (answer === undefined || answer.status === 0) payer.doubts += amount;
}
