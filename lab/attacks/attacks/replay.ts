import { randomUUID } from 'node:crypto';
import type { PaymentPayload } from '@x402/core/types';
import { appendPaymentIdentifierToExtensions } from '@x402/extensions/payment-identifier';
import type { Hex } from 'viem';
import type { Sent } from '../../soak/callers/line.ts';
import type { Attack } from '../attack.ts';
import type { Attempt } from '../attempt.ts';

/** Order of secp256k1: a signature with `s` is also valid with the order minus `s` (EIP-2). */
const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const COPIES = 5;
/** Costs enough at our target for its payment to be a valid deposit. */
const dear = (attempt: Attempt): Sent => attempt.post(attempt.text(undefined, 2_778), 'provider-a/tts-1-hd');

const refused = (name: string, attempt: Attack['attempt']): Attack => ({ name, right: 'refused', attempt });

const copies = <Made>(make: (index: number) => Made): Made[] =>
  Array.from({ length: COPIES }, (_, index) => make(index));

function renamed(payment: PaymentPayload): PaymentPayload {
  const copy = structuredClone(payment);
  appendPaymentIdentifierToExtensions(copy.extensions ?? {}, `pay_${randomUUID()}`);
  return copy;
}

interface Exact {
  readonly signature: Hex;
  readonly authorization: Record<string, string>;
}

const exactOf = ({ payload }: PaymentPayload) => payload as unknown as Exact;

const withExact = (payment: PaymentPayload, exact: Partial<Exact>): PaymentPayload => ({
  ...renamed(payment),
  payload: { ...payment.payload, ...exact },
});

function twinOf(signature: Hex): Hex {
  const s = ORDER - BigInt(`0x${signature.slice(66, 130)}`);
  const v = signature.endsWith('1b') ? '1c' : '1b';
  return `0x${signature.slice(2, 66)}${s.toString(16).padStart(64, '0')}${v}`;
}

/** 0 and 1 in place of 27 and 28. */
const loweredV = (signature: Hex): Hex => `0x${signature.slice(2, 130)}${signature.endsWith('1b') ? '00' : '01'}`;

const upper = (hex: string): string => `0x${hex.slice(2).toUpperCase()}`;

/** Buys one text, then requests another with the same authorization in a different encoding. */
const rewritten = (name: string, rewrite: (payment: PaymentPayload) => PaymentPayload): Attack =>
  refused(name, async (attempt) => {
    const { paid, payment } = await attempt.prepare(attempt.post());
    await attempt.politely(paid);
    await attempt.send(attempt.paid(attempt.post(), rewrite(payment)));
  });

/** If nothing is delivered, the client retries the first request. */
async function atOnce(attempt: Attempt, asks: readonly Sent[]): Promise<void> {
  await Promise.all(asks.map((what) => attempt.send(what)));
  const [first] = asks;
  if (first && attempt.delivered.size === 0) await attempt.politely(first);
}

export const REPLAYS: readonly Attack[] = [
  { name: 'nothing at all: a payment is made and served', right: 'served', attempt: (attempt) => attempt.buy() },
  refused('a served request is repeated', async (attempt) => {
    const { paid } = await attempt.prepare(attempt.post());
    await attempt.politely(paid);
    for (const again of [paid, paid]) await attempt.politely(again);
  }),
  refused('a request comes five times at once', async (attempt) => {
    const { paid } = await attempt.prepare(attempt.post());
    await atOnce(
      attempt,
      copies(() => paid),
    );
  }),
  rewritten('a payment is used again, for another text', (payment) => payment),
  rewritten('... under another identifier', renamed),
  rewritten('... with nonce and addresses in capitals', (payment) => {
    const { authorization } = exactOf(payment);
    const { nonce = '', from = '', to = '', ...rest } = authorization;
    return withExact(payment, { authorization: { ...rest, nonce: upper(nonce), from: upper(from), to: upper(to) } });
  }),
  rewritten("... with the signature's twin", (payment) =>
    withExact(payment, { signature: twinOf(exactOf(payment).signature) }),
  ),
  rewritten('... with v as 0 or 1', (payment) =>
    withExact(payment, { signature: loweredV(exactOf(payment).signature) }),
  ),
  rewritten('... with leading zeros in its numbers', (payment) => {
    const { authorization } = exactOf(payment);
    return withExact(payment, { authorization: { ...authorization, value: `0${authorization.value}` } });
  }),
  refused('one payment for five texts at once', async (attempt) => {
    const { payment } = await attempt.prepare(attempt.post());
    await atOnce(
      attempt,
      copies(() => attempt.paid(attempt.post(), payment)),
    );
  }),
  refused('one authorization under five identifiers at once', async (attempt) => {
    const { payment } = await attempt.prepare(attempt.post());
    await atOnce(
      attempt,
      copies(() => attempt.paid(attempt.post(), renamed(payment))),
    );
  }),
  refused('one payment by POST and by GET at once', async (attempt) => {
    const { paid, payment } = await attempt.prepare(attempt.post());
    await atOnce(attempt, [paid, attempt.paid(attempt.get(), renamed(payment))]);
  }),
  refused('one payment at two endpoints, one after the other', async (attempt) => {
    const { paid, payment } = await attempt.prepare(dear(attempt));
    await attempt.politely(paid);
    const other = attempt.target.other(attempt.text(), attempt.price);
    await attempt.send(attempt.paid(other, renamed(payment)));
  }),
  refused('one payment at two endpoints at once', async (attempt) => {
    const { paid, payment } = await attempt.prepare(dear(attempt));
    const other = attempt.target.other(attempt.text(), attempt.price);
    await atOnce(attempt, [paid, attempt.paid(other, renamed(payment))]);
  }),
  refused('one identifier for two authorizations, one after the other', async (attempt) => {
    const what = attempt.post();
    const identifier = `pay_${randomUUID()}`;
    const challenge = await attempt.challenge(what);
    await attempt.politely(attempt.paid(what, await attempt.sign(challenge, {}, attempt.payer, identifier)));
    await attempt.send(attempt.paid(what, await attempt.sign(challenge, {}, attempt.payer, identifier)));
  }),
  refused('one identifier for two authorizations at once', async (attempt) => {
    const what = attempt.post();
    const identifier = `pay_${randomUUID()}`;
    const challenge = await attempt.challenge(what);
    const payments = [1, 2].map(() => attempt.sign(challenge, {}, attempt.payer, identifier));
    const asks = (await Promise.all(payments)).map((payment) => attempt.paid(what, payment));
    await Promise.all(asks.map((each) => attempt.send(each)));
  }),
  refused('the body is swapped for another one of the same price', async (attempt) => {
    const { payment } = await attempt.prepare(attempt.post());
    await attempt.politely(attempt.paid(attempt.post(), payment));
  }),
  refused('the challenge of a cheap request is paid for a dear one', async (attempt) => {
    const { payment } = await attempt.prepare(attempt.post());
    await attempt.send(attempt.paid(attempt.post(attempt.text(undefined, 4_000)), payment));
  }),
];
