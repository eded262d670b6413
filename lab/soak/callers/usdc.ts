import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { CHAIN_ID } from '../../../src/sandbox/chain/chain-client.ts';
import { fund } from '../../../src/sandbox/chain/fund.ts';
import { type KeyedWallet, keyedWallet } from '../../signers/keyed-wallet.ts';
import { type Challenge, separatorOf, signedPayment } from '../../signers/payment-signer.ts';
import type { Service } from '../world/world.ts';
import type { Heard, Sent } from './line.ts';
import {
  errorOf,
  isPassing,
  jsonOf,
  jsonPost,
  mustNotServe,
  type Open,
  type Operation,
  type Outcome,
  speechRequest,
} from './operation.ts';
import { drawBytes, drawHangUp, drawId, drawText, isSpeech, priceOf } from './text.ts';

const PATH = '/x402/tts';
/** Balance of a wallet in micro-USDC: more than a run can spend. */
const PURSE = 10_000_000_000n;
/** Range of one deposit in micro-USDC: above the price of any speech, so that its transfer tells what it is for. */
const [LEAST, MOST] = [150_000, 250_000];
const QUOTED = 0.3;
/** More expired quotes in one operation are a fault: a stepped clock is corrected sooner. */
const MOST_EXPIRED = 12;
/** Validity of an authorization in seconds. */
const VALID_SECONDS = [30, 60] as const;
/** A refusal this long after the expiry is final: by then the chain is known. */
const LEEWAY_SECONDS = 45;

export async function openWallet({ chain }: Service, key: Buffer): Promise<KeyedWallet> {
  const wallet = keyedWallet(key);
  await fund(chain, wallet.address, { usdc: PURSE });
  return wallet;
}

/** Speech paid in USDC for each request, with or without a quote. Some callers also try what is forbidden. */
export const openDirect: Open = async ({ world, key }) => {
  const wallet = await openWallet(world, key);
  return { customer: { longestPauseMs: 300, buy: (operation) => buySpeech(operation, wallet) } };
};

/** Deposits, retried until they are credited. */
export const openDeposit: Open = async ({ world, key }) => {
  const wallet = await openWallet(world, key);
  const buy = (operation: Operation) => deposit(operation, wallet, operation.random.between(LEAST, MOST));
  return { customer: { longestPauseMs: 500, buy } };
};

interface Payment {
  readonly sent: Sent;
  readonly challenge: Challenge;
  readonly nonce: Buffer;
  readonly identifier: string;
  readonly validBefore: number;
}

async function buySpeech(operation: Operation, wallet: KeyedWallet): Promise<Outcome> {
  const { random } = operation;
  const text = drawText(random);
  const flow = random.chance(QUOTED) ? 'direct, quoted' : 'direct';
  const does = random.weighted([
    [10, 'pays'],
    [2, 'pays at both'],
    [2, 'hangs up'],
    [1, 'repeats'],
    [1, 'changes the text'],
    [1, 'changes the identifier'],
  ] as const);
  const payment = await (flow === 'direct'
    ? payRequest(operation, wallet, speechRequest(PATH, text, random.chance(0.3)))
    : payQuoted(operation, wallet, text));
  const come = outcomeOf(flow, wallet, priceOf(text), payment);
  if (payment === undefined) return come('open');
  const [first, second] = await settleAs(does, operation, payment);
  if (first === undefined) return come('open');
  if (second && !isSameEnd(first, second)) {
    operation.isWrong(`two answers to one payment differ: ${[first, second].map(shown).join(' and ')}`);
  }
  if (first.status !== 200) return come(endOfUnserved(first));
  if (!isSpeech(first, text)) operation.isWrong('a settled payment was answered without its speech');
  if (does === 'repeats' && !(await settle(operation, payment))?.body.equals(first.body)) {
    operation.isWrong('the repetition of a settled payment was answered otherwise');
  }
  if (does === 'changes the text') {
    const other = jsonPost(PATH, { text: `${text} too` }, payment.sent.headers);
    await mustNotServe(operation, other, 'another text with the identifier of a payment');
  }
  if (does === 'changes the identifier') {
    const { sent } = sign(wallet, payment.challenge, payment.sent, {
      ...payment,
      identifier: drawIdentifier(operation),
    });
    await mustNotServe(operation, sent, 'the authorization of a payment under another identifier');
  }
  return come('served');
}

export async function deposit(operation: Operation, wallet: KeyedWallet, amountMicroUsd: number): Promise<Outcome> {
  const does = operation.random.weighted([
    [10, 'pays'],
    [2, 'pays at both'],
    [2, 'hangs up'],
    [1, 'repeats'],
  ] as const);
  const payment = await payRequest(operation, wallet, jsonPost('/x402/deposit', { amountMicroUsd }));
  const come = outcomeOf('deposit', wallet, BigInt(amountMicroUsd), payment);
  if (payment === undefined) return come('open');
  const [first] = await settleAs(does, operation, payment);
  if (first === undefined) return come('open');
  if (first.status !== 200) return come(endOfUnserved(first));
  if (does === 'repeats') {
    const again = await settle(operation, payment);
    const { alreadyCredited, creditedMicroUsd } = (again && jsonOf(again)) ?? {};
    if (alreadyCredited !== true || creditedMicroUsd !== 0) operation.isWrong('a repeated deposit was credited again');
  }
  return come('served');
}

const outcomeOf =
  (flow: Outcome['flow'], { address: payer }: KeyedWallet, amountMicroUsd: bigint, payment: Payment | undefined) =>
  (end: Outcome['end']): Outcome => ({
    ...{ flow, end, amountMicroUsd },
    keys: { payer, ...(payment && { nonce: hexOf(payment.nonce), paymentId: payment.identifier }) },
  });

const hexOf = (nonce: Buffer): string => `0x${nonce.toString('hex')}`;
const drawIdentifier = ({ random }: Operation): string => `pay_${drawId(random)}`;

/** Requests a challenge until one arrives, and signs it. @returns undefined after the timeout */
async function payRequest(operation: Operation, wallet: KeyedWallet, sent: Sent): Promise<Payment | undefined> {
  const challenge = await askChallenge(operation, () => operation.ask(sent));
  return challenge && payChallenge(operation, wallet, challenge, sent);
}

/** Replaces a quote that has expired. A quote by a gateway whose clock is behind is expired from the start. */
async function payQuoted(operation: Operation, wallet: KeyedWallet, text: string): Promise<Payment | undefined> {
  let quoteToken: string | undefined;
  let expired = 0;
  const challenge = await askChallenge(operation, async () => {
    quoteToken ??= await quote(operation, text);
    const heard = await operation.ask(jsonPost(PATH, { quoteToken }));
    if (errorOf(heard)?.code === 'QUOTE_EXPIRED') {
      quoteToken = undefined;
      expired += 1;
      if (expired > MOST_EXPIRED) operation.isWrong('quotes go on to expire before they are used');
    }
    return heard;
  });
  return challenge && payChallenge(operation, wallet, challenge, jsonPost(PATH, { quoteToken, text }));
}

async function quote(operation: Operation, text: string): Promise<string | undefined> {
  const textSha256 = createHash('sha256').update(text).digest('hex');
  const sent = jsonPost('/x402/tts/quote', { textLength: text.length, textSha256 });
  const heard = await operation.retryUntilResolved(
    () => operation.ask(sent),
    (heard) => (isPassing(heard) ? undefined : heard),
  );
  const { quoteToken, amountMicroUsd } = (heard && jsonOf(heard)) ?? {};
  if (heard && amountMicroUsd !== Number(priceOf(text))) {
    operation.isWrong(`${text.length} characters were quoted at ${amountMicroUsd} micro-USD, status ${heard.status}`);
  }
  return quoteToken as string | undefined;
}

async function askChallenge(operation: Operation, ask: () => Promise<Heard>): Promise<Challenge | undefined> {
  const header = await operation.retryUntilResolved(ask, (heard) =>
    heard.status === 402 ? (heard.headers['payment-required'] as string | undefined) : undefined,
  );
  return header === undefined ? undefined : JSON.parse(Buffer.from(header, 'base64').toString());
}

function payChallenge(operation: Operation, wallet: KeyedWallet, challenge: Challenge, sent: Sent): Payment {
  const { random } = operation;
  const validBefore = Math.floor(Date.now() / 1000) + random.between(...VALID_SECONDS);
  const identifier = drawIdentifier(operation);
  return sign(wallet, challenge, sent, { nonce: drawBytes(random, 32), identifier, validBefore });
}

function sign(
  wallet: KeyedWallet,
  challenge: Challenge,
  sent: Sent,
  { nonce, identifier, validBefore }: Pick<Payment, 'nonce' | 'identifier' | 'validBefore'>,
): Payment {
  const terms = { nonce, identifier, validBefore: BigInt(validBefore) };
  const signature = signedPayment(challenge, wallet, separatorOf(challenge, CHAIN_ID), terms);
  const headers = { ...sent.headers, 'payment-signature': signature };
  return { challenge, nonce, identifier, validBefore, sent: { ...sent, headers } };
}

/** Settles once, at both gateways at once, or after it was sent and left. */
async function settleAs(
  does: string,
  operation: Operation,
  payment: Payment,
): Promise<readonly [Heard | undefined, (Heard | undefined)?]> {
  if (does === 'hangs up') await operation.pay(payment.sent, drawHangUp(operation.random));
  if (does === 'pays at both') return Promise.all([settle(operation, payment), settle(operation, payment)]);
  return [await settle(operation, payment)];
}

/** Retries the payment until it is served or refused for good: after the authorization has expired (R23). */
const settle = (operation: Operation, { sent, validBefore }: Payment): Promise<Heard | undefined> =>
  operation.retryUntilResolved(
    () => operation.pay(sent),
    (heard) => {
      if (isPassing(heard)) return undefined;
      const code = errorOf(heard)?.code;
      const isUnknown = code === 'PAYMENT_REPLAY_PENDING' || code === 'PAYMENT_OUTCOME_UNKNOWN';
      const isOver = Date.now() / 1000 > validBefore + LEEWAY_SECONDS;
      return heard.status === 200 || (isOver && !isUnknown) ? heard : undefined;
    },
  );

/** How a payment ended that was not served: only a response that says nothing was charged is final. */
function endOfUnserved(heard: Heard): 'refused' | 'open' {
  const { state } = (errorOf(heard)?.details.payment ?? {}) as { state?: unknown };
  return state === 'not_charged' ? 'refused' : 'open';
}

/** Both served with the same speech, or both refused with the same statement about the payment. */
function isSameEnd(one: Heard, other: Heard): boolean {
  if (one.status === 200 || other.status === 200) return one.status === other.status && one.body.equals(other.body);
  return isDeepStrictEqual(errorOf(one)?.details.payment, errorOf(other)?.details.payment);
}

const shown = (heard: Heard): string =>
  heard.status === 200 ? '200' : `${heard.status} ${JSON.stringify(errorOf(heard))}`;
