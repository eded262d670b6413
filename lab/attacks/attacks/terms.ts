import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import type { Address, TypedDataDomain } from 'viem';
import { type Authorization, signAuthorization, USDC_DOMAIN } from '../../../test/support/chain.ts';
import { payloadOf } from '../../../test/support/facilitator.ts';
import type { Attack } from '../attack.ts';

const ELSEWHERE: Address = '0x00000000000000000000000000000000000000e1';
const OTHER_TOKEN: Address = '0x50c5725949A6F0c72E6C4a641F24049A917DB0Cb';
const HOUR = 3_600;
const TEN_YEARS = 10 * 365 * 24 * HOUR;

interface Deviation {
  readonly authorization?: (offer: PaymentRequirements, now: bigint) => Partial<Authorization>;
  readonly domain?: TypedDataDomain;
  readonly type?: 'ReceiveWithAuthorization';
  readonly accepted?: (offer: PaymentRequirements) => PaymentRequirements;
  /** Changes the payload after it was signed. */
  readonly written?: (payment: PaymentPayload) => unknown;
}

const otherwise = (name: string, deviation: Deviation): Attack => ({
  name,
  right: 'refused',
  attempt: async (attempt) => {
    const what = attempt.post();
    const challenge = await attempt.challenge(what);
    const offer = challenge.accepts[0] as PaymentRequirements;
    const now = BigInt(Math.floor(Date.now() / 1000));
    const terms = {
      to: offer.payTo as Address,
      value: BigInt(offer.amount),
      validBefore: now + BigInt(offer.maxTimeoutSeconds),
      ...deviation.authorization?.(offer, now),
    };
    const signed = await signAuthorization(attempt.payer, terms, deviation.type, deviation.domain);
    const official = await attempt.sign(challenge);
    const accepted = deviation.accepted?.(offer) ?? offer;
    const payment = { ...official, ...payloadOf(offer, signed), accepted };
    await attempt.send(attempt.paid(what, (deviation.written?.(payment) ?? payment) as PaymentPayload));
  },
});

const value = (text: string) => (payment: PaymentPayload) => {
  const { authorization } = payment.payload as { authorization: object };
  return { ...payment, payload: { ...payment.payload, authorization: { ...authorization, value: text } } };
};

export const OTHER_TERMS: readonly Attack[] = [
  otherwise('a micro-dollar too little', { authorization: ({ amount }) => ({ value: BigInt(amount) - 1n }) }),
  otherwise('a micro-dollar too much', { authorization: ({ amount }) => ({ value: BigInt(amount) + 1n }) }),
  otherwise('nothing is paid', { authorization: () => ({ value: 0n }) }),
  otherwise('nothing is paid, and nothing is said to be asked for', {
    authorization: () => ({ value: 0n }),
    accepted: (offer) => ({ ...offer, amount: '0' }),
  }),
  otherwise('more is paid than the wallet holds', { authorization: () => ({ value: 10n ** 12n }) }),
  otherwise('all the money there can be', { authorization: () => ({ value: 2n ** 256n - 1n }) }),
  otherwise('another amount is written than signed', { written: value('1') }),
  otherwise('a negative amount', { written: value('-1080') }),
  otherwise('an amount with an exponent', { written: value('1e9') }),
  otherwise('another payee', { authorization: () => ({ to: ELSEWHERE }) }),
  otherwise('another payee, who is said to be asked for', {
    authorization: () => ({ to: ELSEWHERE }),
    accepted: (offer) => ({ ...offer, payTo: ELSEWHERE }),
  }),
  otherwise('another asset', {
    domain: { ...USDC_DOMAIN, verifyingContract: OTHER_TOKEN },
    accepted: (offer) => ({ ...offer, asset: OTHER_TOKEN }),
  }),
  otherwise('another chain', {
    domain: { ...USDC_DOMAIN, chainId: 1 },
    accepted: (offer) => ({ ...offer, network: 'eip155:1' }),
  }),
  otherwise('signed for another chain', { domain: { ...USDC_DOMAIN, chainId: 1 } }),
  otherwise('another scheme', { accepted: (offer) => ({ ...offer, scheme: 'upto' }) }),
  otherwise('signed for `receiveWithAuthorization`', { type: 'ReceiveWithAuthorization' }),
  otherwise('expired', { authorization: (_, now) => ({ validBefore: now - 1n }) }),
  otherwise('expires in seven seconds', { authorization: (_, now) => ({ validBefore: now + 7n }) }),
  otherwise('not yet valid', { authorization: (_, now) => ({ validAfter: now + BigInt(HOUR) }) }),
  otherwise('valid for ten years', { authorization: (_, now) => ({ validBefore: now + BigInt(TEN_YEARS) }) }),
];
