import { CHAIN_ID } from '../../../src/sandbox/chain/chain-client.ts';
import type { KeyedWallet } from '../../signers/keyed-wallet.ts';
import { type Challenge, separatorOf, signedPayment } from '../../signers/payment-signer.ts';
import { drawBytes, drawId } from './draws.ts';
import type { Heard, Sent } from './line.ts';
import { errorOf, isPassing, type Operation } from './operation.ts';

/** Validity of an authorization in seconds. */
const SHORTEST_VALID = 30;
const LONGEST_VALID = 60;
/** A refusal this long after the expiry is final: by then the chain is known. */
const LEEWAY_SECONDS = 45;

export interface Payment {
  readonly sent: Sent;
  readonly challenge: Challenge;
  /** Hexadecimal with 0x. */
  readonly nonce: string;
  readonly identifier: string;
  readonly validBefore: number;
}

/** Requests a challenge until one arrives. @returns undefined after the timeout */
export async function askChallenge(operation: Operation, ask: () => Promise<Heard>): Promise<Challenge | undefined> {
  const header = await operation.retryUntilResolved(ask, (heard) =>
    heard.status === 402 ? (heard.headers['payment-required'] as string | undefined) : undefined,
  );
  return header === undefined ? undefined : JSON.parse(Buffer.from(header, 'base64').toString());
}

/** Signs a payment for the challenge and adds it to the request. */
export function payChallenge({ random }: Operation, wallet: KeyedWallet, challenge: Challenge, sent: Sent): Payment {
  const validBefore = Math.floor(Date.now() / 1000) + random.between(SHORTEST_VALID, LONGEST_VALID);
  return sign(wallet, challenge, sent, {
    ...{ nonce: drawBytes(random, 32), identifier: `pay_${drawId(random)}`, validBefore },
  });
}

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

export const underAnotherName = (operation: Operation, wallet: KeyedWallet, payment: Payment): Payment =>
  sign(wallet, payment.challenge, payment.sent, {
    nonce: Buffer.from(payment.nonce.slice(2), 'hex'),
    ...{ identifier: `pay_${drawId(operation.random)}`, validBefore: payment.validBefore },
  });

/** How a payment ended that was not served: only a response that says nothing was charged is final. */
export function endOfUnserved(heard: Heard): 'refused' | 'open' {
  const { state } = (errorOf(heard)?.details.payment ?? {}) as { state?: unknown };
  return state === 'not_charged' ? 'refused' : 'open';
}

/**
 * `served`: status 200. `refused`: a refusal after the authorization has expired (R23).
 * @returns undefined while the caller has to retry the same payment
 */
export function endOf(heard: Heard, { validBefore }: Payment): 'served' | 'refused' | undefined {
  if (isPassing(heard)) return undefined;
  if (heard.status === 200) return 'served';
  const code = errorOf(heard)?.code;
  if (code === 'PAYMENT_REPLAY_PENDING' || code === 'PAYMENT_OUTCOME_UNKNOWN') return undefined;
  return Date.now() / 1000 > validBefore + LEEWAY_SECONDS ? 'refused' : undefined;
}
