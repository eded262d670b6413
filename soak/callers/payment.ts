import { CHAIN_ID } from '../../src/sandbox/chain/chain-client.ts';
import type { KeyedWallet } from '../../test/support/keyed-wallet.ts';
import { type Challenge, separatorOf, signedPayment } from '../../test/support/payment-signer.ts';
import { drawBytes, drawId } from './draws.ts';
import type { Heard, Sent } from './line.ts';
import { errorOf, isPassing, type Operation } from './operation.ts';

/** Seconds for which an authorization may be used. */
const SHORTEST_VALID = 30;
const LONGEST_VALID = 60;
/** After that, and as long as this, what is refused stays refused: the chain has told it by then. */
const LEEWAY_SECONDS = 45;

/** A signed payment, and the request that carries it. */
export interface Payment {
  readonly sent: Sent;
  readonly challenge: Challenge;
  /** In hexadecimal, with 0x. */
  readonly nonce: string;
  readonly identifier: string;
  /** Unix seconds. */
  readonly validBefore: number;
}

/** Asks for a challenge until one comes; undefined when none came in time. */
export async function askChallenge(operation: Operation, ask: () => Promise<Heard>): Promise<Challenge | undefined> {
  const header = await operation.pursue(ask, (heard) =>
    heard.status === 402 ? (heard.headers['payment-required'] as string | undefined) : undefined,
  );
  return header === undefined ? undefined : JSON.parse(Buffer.from(header, 'base64').toString());
}

/** Signs what a challenge asks for, to be sent with a request that the challenge is good for. */
export function payChallenge({ random }: Operation, wallet: KeyedWallet, challenge: Challenge, sent: Sent): Payment {
  const validBefore = Math.floor(Date.now() / 1000) + random.between(SHORTEST_VALID, LONGEST_VALID);
  return sign(wallet, challenge, sent, {
    ...{ nonce: drawBytes(random, 32), identifier: `pay_${drawId(random)}`, validBefore },
  });
}

/** Asks for the challenge of a request, and pays it. */
export async function payRequest(operation: Operation, wallet: KeyedWallet, sent: Sent): Promise<Payment | undefined> {
  const challenge = await askChallenge(operation, () => operation.ask(sent));
  return challenge && payChallenge(operation, wallet, challenge, sent);
}

function sign(
  wallet: KeyedWallet,
  challenge: Challenge,
  sent: Sent,
  { nonce, identifier, validBefore }: { nonce: Buffer; identifier: string; validBefore: number },
): Payment {
  const terms = { nonce, identifier, validBefore: BigInt(validBefore) };
  const signature = signedPayment(challenge, wallet, separatorOf(challenge, CHAIN_ID), terms);
  return {
    ...{ challenge, identifier, validBefore, nonce: `0x${nonce.toString('hex')}` },
    sent: { ...sent, headers: { ...sent.headers, 'payment-signature': signature } },
  };
}

/** The same authorization under another identifier. */
export const underAnotherName = (operation: Operation, wallet: KeyedWallet, payment: Payment): Payment =>
  sign(wallet, payment.challenge, payment.sent, {
    nonce: Buffer.from(payment.nonce.slice(2), 'hex'),
    ...{ identifier: `pay_${drawId(operation.random)}`, validBefore: payment.validBefore },
  });

/**
 * What the answer to a payment tells of its end: `served` with status 200; `refused` for good, once the authorization can
 * not be used any more (R23); undefined while the identical payment is to be repeated.
 */
export function endOf(heard: Heard, { validBefore }: Payment): 'served' | 'refused' | undefined {
  if (isPassing(heard)) return undefined;
  if (heard.status === 200) return 'served';
  const code = errorOf(heard)?.code;
  if (code === 'PAYMENT_REPLAY_PENDING' || code === 'PAYMENT_OUTCOME_UNKNOWN') return undefined;
  return Date.now() / 1000 > validBefore + LEEWAY_SECONDS ? 'refused' : undefined;
}
