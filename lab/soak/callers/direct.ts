import { isDeepStrictEqual } from 'node:util';
import { fund } from '../../../src/sandbox/chain/fund.ts';
import { type KeyedWallet, keyedWallet } from '../../signers/keyed-wallet.ts';
import { jsonPost } from './card.ts';
import { drawHangUp } from './draws.ts';
import type { Open } from './flow.ts';
import type { Heard, Sent } from './line.ts';
import { errorOf, type Operation, type Outcome } from './operation.ts';
import {
  askChallenge,
  endOf,
  endOfUnserved,
  type Payment,
  payChallenge,
  payRequest,
  underAnotherName,
} from './payment.ts';
import { quote } from './quote.ts';
import { drawText, isSpeech, priceOf } from './text.ts';

const PATH = '/x402/tts';
/** Balance of a wallet in micro-USDC: more than a run can spend. */
export const PURSE = 10_000_000_000n;
const QUOTED = 0.3;
/** More expired quotes in one operation are a fault: a stepped clock is corrected sooner. */
const MOST_EXPIRED = 12;

/** Speech paid in USDC for each request, with or without a quote. Some callers also try what is forbidden. */
export const openDirect: Open = async ({ world, key }) => {
  const wallet = keyedWallet(key);
  await fund(world.chain, wallet.address, { usdc: PURSE });
  return { customer: { longestPauseMs: 300, buy: (operation) => buy(operation, wallet) }, bought: [] };
};

async function buy(operation: Operation, wallet: KeyedWallet): Promise<Outcome> {
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
  const payment = await (flow === 'direct' ? payPlain(operation, wallet, text) : payQuoted(operation, wallet, text));
  const come = (end: Outcome['end']): Outcome => ({
    ...{ flow, end, amountMicroUsd: priceOf(text) },
    keys: { payer: wallet.address, ...(payment && { nonce: payment.nonce, paymentId: payment.identifier }) },
  });
  if (payment === undefined) return come('open');

  if (does === 'hangs up') await operation.pay(payment.sent, drawHangUp(random, 1));
  const [first, second] = await Promise.all([
    settle(operation, payment),
    ...(does === 'pays at both' ? [settle(operation, payment)] : []),
  ]);
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
    const { sent } = underAnotherName(operation, wallet, payment);
    await mustNotServe(operation, sent, 'the authorization of a payment under another identifier');
  }
  return come('served');
}

function payPlain(operation: Operation, wallet: KeyedWallet, text: string): Promise<Payment | undefined> {
  const isGet = operation.random.chance(0.3);
  const get: Sent = { method: 'GET', path: `${PATH}?text=${encodeURIComponent(text)}` };
  return payRequest(operation, wallet, isGet ? get : jsonPost(PATH, { text }));
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

/** Retries the payment until it is served or refused for good. */
export const settle = (operation: Operation, payment: Payment): Promise<Heard | undefined> =>
  operation.retryUntilResolved(
    () => operation.pay(payment.sent),
    (heard) => endOf(heard, payment) && heard,
  );

/** Both served with the same speech, or both refused with the same statement about the payment. */
function isSameEnd(one: Heard, other: Heard): boolean {
  if (one.status === 200 || other.status === 200) return one.status === other.status && one.body.equals(other.body);
  return isDeepStrictEqual(errorOf(one)?.details.payment, errorOf(other)?.details.payment);
}

const shown = (heard: Heard): string =>
  heard.status === 200 ? '200' : `${heard.status} ${JSON.stringify(errorOf(heard))}`;

async function mustNotServe(operation: Operation, sent: Sent, what: string): Promise<void> {
  const { status } = await operation.ask(sent);
  if (status === 200) operation.isWrong(`${what} was served`);
}
