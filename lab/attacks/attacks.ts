import { randomBytes, randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PaymentPayload, PaymentRequirements, SettleResponse } from '@x402/core/types';
import { appendPaymentIdentifierToExtensions } from '@x402/extensions/payment-identifier';
import type { Address, Hex, TypedDataDomain } from 'viem';
import * as chain from '../../test/support/chain.ts';
import { payloadOf } from '../../test/support/facilitator.ts';
import * as faults from '../../test/support/facilitator-faults.ts';
import * as upstream from '../../test/support/stub-upstream.ts';
import { encodePayment, nonceOf } from '../../test/support/x402.ts';
import type { HangUp, Sent } from '../soak/callers/line.ts';
import type { Attempt } from './attempt.ts';
import type { Target } from './targets.ts';
import { audioOf, drain, type Plan, settledBefore, speakAfter } from './world.ts';

/**
 * Acceptable responses besides a 200 with the requested goods. `refused`: any 4xx. `failed`: also any 5xx, for faults
 * in other parts. `broken`: also a connection that the attack itself cuts.
 */
export type Right = 'served' | 'refused' | 'failed' | 'broken';

export interface Attack {
  readonly name: string;
  readonly right: Right;
  /** Its tries mostly wait for other parts, so more of them run at once. */
  readonly waits?: true;
  /** The target restarts before each batch of this many tries. They run at once, and `meanwhile` runs when all wait. */
  readonly atOnce?: number;
  readonly meanwhile?: (target: Target) => Promise<unknown>;
  /** One try. An exception counts as a wrong status. */
  attempt(attempt: Attempt): Promise<unknown>;
}

const refused = (name: string, attempt: Attack['attempt']): Attack => ({ name, right: 'refused', attempt });
const failed = (name: string, attempt: Attack['attempt'], more: Partial<Attack> = {}): Attack => ({
  ...{ name, right: 'failed', attempt },
  ...more,
});
/** Tries in a batch that waits for a timeout of the target, or for its restart. */
const AT_ONCE = 50;

interface Exact {
  readonly signature: Hex;
  readonly authorization: Readonly<Record<string, string>>;
}

const exactOf = ({ payload }: PaymentPayload) => payload as unknown as Exact;
const withPayload = (payment: PaymentPayload, change: object) => ({
  ...payment,
  payload: { ...payment.payload, ...change },
});
const withAuthorization = (payment: PaymentPayload, change: object) =>
  withPayload(payment, { authorization: { ...exactOf(payment).authorization, ...change } });

// Replays: one payment or one identifier is used more than once.

/** Order of secp256k1: a signature with `s` is also valid with the order minus `s` (EIP-2). */
const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;

function renamed(payment: PaymentPayload): PaymentPayload {
  const copy = structuredClone(payment);
  appendPaymentIdentifierToExtensions(copy.extensions ?? {}, `pay_${randomUUID()}`);
  return copy;
}

function twinOf(signature: Hex): Hex {
  const s = ORDER - BigInt(`0x${signature.slice(66, 130)}`);
  return `0x${signature.slice(2, 66)}${s.toString(16).padStart(64, '0')}${signature.endsWith('1b') ? '1c' : '1b'}`;
}

/** 0 and 1 in place of 27 and 28. */
const loweredV = (signature: Hex): Hex => `0x${signature.slice(2, 130)}${signature.endsWith('1b') ? '00' : '01'}`;

const inCapitals = (payment: PaymentPayload): PaymentPayload => {
  const { nonce, from, to } = exactOf(payment).authorization;
  const upper = Object.entries({ nonce, from, to }).map(([name, hex]) => [name, `0x${hex?.slice(2).toUpperCase()}`]);
  return withAuthorization(payment, Object.fromEntries(upper));
};

/** Buys one text, then requests another with the same authorization in a different encoding. */
const rewritten = (name: string, rewrite: (payment: PaymentPayload) => PaymentPayload): Attack =>
  refused(name, async (attempt) => {
    const { paid, payment } = await attempt.prepare(attempt.post());
    await attempt.politely(paid);
    await attempt.send(attempt.paid(attempt.post(), rewrite(payment)));
  });

/** Sends what `asks` makes of a prepared request, all at once. If nothing is delivered, the client retries the first. */
const allAtOnce = (
  name: string,
  asks: (attempt: Attempt, paid: Sent, payment: PaymentPayload) => readonly Sent[],
  what: (attempt: Attempt) => Sent = (attempt) => attempt.post(),
): Attack =>
  refused(name, async (attempt) => {
    const { paid, payment } = await attempt.prepare(what(attempt));
    const all = asks(attempt, paid, payment);
    await Promise.all(all.map((each) => attempt.send(each)));
    if (all[0] && attempt.delivered.size === 0) await attempt.politely(all[0]);
  });

const fiveOf = (make: () => Sent): Sent[] => Array.from({ length: 5 }, make);

/** Costs enough at our target for its payment to be a valid deposit. */
const dear = (attempt: Attempt): Sent => attempt.post(attempt.text(undefined, 2_778), 'provider-a/tts-1-hd');

const atOther = (attempt: Attempt, payment: PaymentPayload): Sent =>
  attempt.paid(attempt.target.other(attempt.text(), attempt.price), renamed(payment));

/** Two requests with different authorizations under one identifier. */
async function underOneIdentifier(attempt: Attempt): Promise<[Sent, Sent]> {
  const what = attempt.post();
  const identifier = `pay_${randomUUID()}`;
  const challenge = await attempt.challenge(what);
  const sign = async () => attempt.paid(what, await attempt.sign(challenge, {}, attempt.payer, identifier));
  return [await sign(), await sign()];
}

const REPLAYS: readonly Attack[] = [
  { name: 'nothing at all: a payment is made and served', right: 'served', attempt: (attempt) => attempt.buy() },
  refused('a served request is repeated', async (attempt) => {
    const { paid } = await attempt.prepare(attempt.post());
    for (const again of [paid, paid, paid]) await attempt.politely(again);
  }),
  allAtOnce('a request comes five times at once', (_, paid) => fiveOf(() => paid)),
  rewritten('a payment is used again, for another text', (payment) => payment),
  rewritten('... under another identifier', renamed),
  rewritten('... with nonce and addresses in capitals', (payment) => inCapitals(renamed(payment))),
  rewritten("... with the signature's twin", (payment) =>
    withPayload(renamed(payment), { signature: twinOf(exactOf(payment).signature) }),
  ),
  rewritten('... with v as 0 or 1', (payment) =>
    withPayload(renamed(payment), { signature: loweredV(exactOf(payment).signature) }),
  ),
  rewritten('... with leading zeros in its numbers', (payment) =>
    withAuthorization(renamed(payment), { value: `0${exactOf(payment).authorization.value}` }),
  ),
  allAtOnce('one payment for five texts at once', (attempt, _, payment) =>
    fiveOf(() => attempt.paid(attempt.post(), payment)),
  ),
  allAtOnce('one authorization under five identifiers at once', (attempt, _, payment) =>
    fiveOf(() => attempt.paid(attempt.post(), renamed(payment))),
  ),
  allAtOnce('one payment by POST and by GET at once', (attempt, paid, payment) => [
    paid,
    attempt.paid(attempt.get(), renamed(payment)),
  ]),
  refused('one payment at two endpoints, one after the other', async (attempt) => {
    const { paid, payment } = await attempt.prepare(dear(attempt));
    await attempt.politely(paid);
    await attempt.send(atOther(attempt, payment));
  }),
  allAtOnce(
    'one payment at two endpoints at once',
    (attempt, paid, payment) => [paid, atOther(attempt, payment)],
    dear,
  ),
  refused('one identifier for two authorizations, one after the other', async (attempt) => {
    const [first, second] = await underOneIdentifier(attempt);
    await attempt.politely(first);
    await attempt.send(second);
  }),
  refused('one identifier for two authorizations at once', async (attempt) => {
    const asks = await underOneIdentifier(attempt);
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

// Terms: the payment is for something else than was asked.

const ELSEWHERE: Address = '0x00000000000000000000000000000000000000e1';
const OTHER_TOKEN: Address = '0x50c5725949A6F0c72E6C4a641F24049A917DB0Cb';
const [HOUR, TEN_YEARS] = [3_600n, 315_360_000n];

interface Deviation {
  readonly authorization?: (now: bigint, offer: PaymentRequirements) => Partial<chain.Authorization>;
  readonly domain?: TypedDataDomain;
  readonly type?: 'ReceiveWithAuthorization';
  /** Replaces fields of what the payment says to accept. */
  readonly accepted?: Partial<PaymentRequirements>;
  /** Replaces fields of the authorization after it was signed. */
  readonly written?: object;
}

const otherwise = (name: string, deviation: Deviation): Attack =>
  refused(name, async (attempt) => {
    const what = attempt.post();
    const challenge = await attempt.challenge(what);
    const offer = challenge.accepts[0] as PaymentRequirements;
    const now = BigInt(Math.floor(Date.now() / 1000));
    const terms = {
      to: offer.payTo as Address,
      value: BigInt(offer.amount),
      validBefore: now + BigInt(offer.maxTimeoutSeconds),
      ...deviation.authorization?.(now, offer),
    };
    const signed = await chain.signAuthorization(attempt.payer, terms, deviation.type, deviation.domain);
    const official = await attempt.sign(challenge);
    const accepted = { ...offer, ...deviation.accepted };
    const payment = { ...official, ...payloadOf(offer, signed), accepted };
    await attempt.send(attempt.paid(what, withAuthorization(payment, deviation.written ?? {})));
  });

const OTHER_TERMS: readonly Attack[] = [
  otherwise('a micro-dollar too little', { authorization: (_, { amount }) => ({ value: BigInt(amount) - 1n }) }),
  otherwise('a micro-dollar too much', { authorization: (_, { amount }) => ({ value: BigInt(amount) + 1n }) }),
  otherwise('nothing is paid', { authorization: () => ({ value: 0n }) }),
  otherwise('nothing is paid, and nothing is said to be asked for', {
    authorization: () => ({ value: 0n }),
    accepted: { amount: '0' },
  }),
  otherwise('more is paid than the wallet holds', { authorization: () => ({ value: 10n ** 12n }) }),
  otherwise('all the money there can be', { authorization: () => ({ value: 2n ** 256n - 1n }) }),
  otherwise('another amount is written than signed', { written: { value: '1' } }),
  otherwise('a negative amount', { written: { value: '-1080' } }),
  otherwise('an amount with an exponent', { written: { value: '1e9' } }),
  otherwise('another payee', { authorization: () => ({ to: ELSEWHERE }) }),
  otherwise('another payee, who is said to be asked for', {
    authorization: () => ({ to: ELSEWHERE }),
    accepted: { payTo: ELSEWHERE },
  }),
  otherwise('another asset', {
    domain: { ...chain.USDC_DOMAIN, verifyingContract: OTHER_TOKEN },
    accepted: { asset: OTHER_TOKEN },
  }),
  otherwise('another chain', {
    domain: { ...chain.USDC_DOMAIN, chainId: 1 },
    accepted: { network: 'eip155:1' },
  }),
  otherwise('signed for another chain', { domain: { ...chain.USDC_DOMAIN, chainId: 1 } }),
  otherwise('another scheme', { accepted: { scheme: 'upto' } }),
  otherwise('signed for `receiveWithAuthorization`', { type: 'ReceiveWithAuthorization' }),
  otherwise('expired', { authorization: (now) => ({ validBefore: now - 1n }) }),
  otherwise('expires in seven seconds', { authorization: (now) => ({ validBefore: now + 7n }) }),
  otherwise('not yet valid', { authorization: (now) => ({ validAfter: now + HOUR }) }),
  otherwise('valid for ten years', { authorization: (now) => ({ validBefore: now + TEN_YEARS }) }),
];

// Payloads: the header is not a payment, or an odd one.

/** Deep enough to overflow the stack of a recursive parser. */
const DEPTH = 3_000;

const base64 = (text: string): string => Buffer.from(text).toString('base64');

/** Derives the payment header from a valid payment. */
const odd = (name: string, write: (payment: PaymentPayload) => string | readonly string[]): Attack =>
  refused(name, async (attempt) => {
    const what = attempt.post();
    const payment = await attempt.sign(await attempt.challenge(what));
    await attempt.send(attempt.paid(what, write(payment) as string));
  });

const changed = (name: string, change: (payment: PaymentPayload) => unknown): Attack =>
  odd(name, (payment) => encodePayment(change(payment)));

const signed = (name: string, signature: string | undefined): Attack =>
  changed(name, (payment) => withPayload(payment, { signature }));

const ODD_PAYLOADS: readonly Attack[] = [
  odd('header: empty', () => ''),
  odd('header: no Base64', () => '{"x402Version":2}'),
  odd('header: no JSON', () => base64('Pay you tomorrow.')),
  odd('header: no UTF-8', () => Buffer.from([0xff, 0xfe, 0x7b]).toString('base64')),
  odd('header: `null`', () => base64('null')),
  odd('header: a list of payments', (payment) => base64(JSON.stringify([payment, payment]))),
  odd('header: 12,000 characters more', (payment) => base64(`${JSON.stringify(payment)}${' '.repeat(9_000)}`)),
  odd('header: 60,000 characters', () => base64('{'.repeat(45_000))),
  odd('header: nested 3,000 levels deep', () => base64(`${'['.repeat(DEPTH)}${']'.repeat(DEPTH)}`)),
  odd('header: the payment twice', (payment) => [encodePayment(payment), encodePayment(payment)]),
  odd('header: two payments', (payment) => [encodePayment(payment), encodePayment({ ...payment, x402Version: 1 })]),
  changed('payload: version 1', (payment) => ({ ...payment, x402Version: 1 })),
  changed('payload: version 3', (payment) => ({ ...payment, x402Version: 3 })),
  changed('payload: the version is text', (payment) => ({ ...payment, x402Version: '2' })),
  changed('payload: nothing is accepted', ({ accepted: _, ...payment }) => payment),
  changed('payload: no authorization', (payment) => ({ ...payment, payload: {} })),
  signed('payload: no signature', undefined),
  signed('payload: an empty signature', '0x'),
  signed('payload: a signature of zeros', `0x${'00'.repeat(65)}`),
  signed('payload: a signature of 5,000 bytes', `0x${'ab'.repeat(5_000)}`),
  changed('payload: Permit2 for EIP-3009', (payment) => ({
    ...payment,
    payload: { signature: `0x${'ab'.repeat(65)}`, permit2Authorization: { from: '0x0', nonce: '1' } },
  })),
  changed('payload: an identifier of one character', (payment) => ({
    ...payment,
    extensions: { 'payment-identifier': { info: { required: true, id: 'x' }, schema: {} } },
  })),
  odd('payload: `__proto__`', (payment) =>
    base64(JSON.stringify(payment).replace('{', '{"__proto__":{"isValid":true,"success":true},')),
  ),
];

// Faults of the facilitator.

const unknownAddress = (): string => `0x${randomBytes(20).toString('hex')}`;
const unknownTransaction = (): string => `0x${randomBytes(32).toString('hex')}`;

const yes: NonNullable<Plan['verify']> = (payment) => ({
  isValid: true,
  payer: exactOf(payment).authorization.from as string,
});

const verifying = (name: string, verify: NonNullable<Plan['verify']>, more?: Partial<Attack>): Attack =>
  failed(`verify: ${name}`, (attempt) => attempt.buy(attempt.post(), { verify }), more);

/** The attacker signs a payment in the name of the try's payer. */
const forged = (name: string, plan: Plan, right: Right = 'failed'): Attack => ({
  ...{ name, right },
  attempt: async (attempt) => {
    const what = attempt.post();
    const attacker = await chain.wallet(attempt.world.chain.client);
    const payment = await attempt.sign(await attempt.challenge(what), plan, attacker);
    await attempt.send(attempt.paid(what, withAuthorization(payment, { from: attempt.payer.address })));
  },
});

const VERIFY_FAULTS: readonly Attack[] = [
  forged('verify: a bad signature', {}, 'refused'),
  forged('verify: yes to a bad signature', { verify: yes }),
  forged('verify and settle: yes to a bad signature, nothing sent', {
    verify: yes,
    settle: () => faults.onlyClaimed(unknownTransaction()),
  }),
  verifying('yes for another payer', () => ({ isValid: true, payer: unknownAddress() })),
  verifying('no to a payment that is in order', () => faults.invalid('invalid_exact_evm_payload_signature')),
  verifying('500', () => 'error'),
  verifying('HTML', () => 'garbage'),
  verifying('the connection is reset', () => 'reset'),
  verifying('a redirect', () => 'redirect'),
  verifying('no answer', () => 'hang', { atOnce: AT_ONCE }),
];

type SettleFault = faults.SettleFault | ((attempt: Attempt, payment: PaymentPayload) => faults.SettleFault);

const planOf = (fault: SettleFault, attempt: Attempt): Plan => ({
  settle: (payment) => (typeof fault === 'function' ? fault(attempt, payment) : fault),
});

const settling = (name: string, fault: SettleFault, more: Partial<Attack> = { waits: true }): Attack =>
  failed(`settle: ${name}`, (attempt) => attempt.buy(attempt.post(), planOf(fault, attempt)), more);

/** The client pays a second time when the response is a new 402. */
const paidAgain = (name: string, fault: SettleFault): Attack => ({
  ...{ name: `settle: ${name}; who is asked to pays again`, right: 'failed', waits: true },
  attempt: async (attempt) => {
    const what = attempt.post();
    const answer = await attempt.buy(what, planOf(fault, attempt));
    if (answer.isWhole && answer.status === 402) await attempt.buy(what);
  },
});

const after = (answer: faults.SettleFault['answer']): faults.SettleFault => ({ broadcast: true, answer });
const before = (answer: faults.SettleFault['answer']): faults.SettleFault => ({ broadcast: false, answer });
const answering = (change: Partial<SettleResponse>) =>
  after((settled) => ({ ...(settled as SettleResponse), ...change }));

const unfunded = after((settled) => {
  const { network } = settled as SettleResponse;
  return { success: false, errorReason: 'insufficient_funds', transaction: '', network };
});

/** Claims a transaction of the facilitator that paid for something else. */
const foreign: SettleFault = ({ world }) =>
  faults.onlyClaimed(world.facilitator.broadcasts.at(-1) ?? unknownTransaction());

/** Returns `settlement_pending` once and the result on the second call, as the official facilitator may. */
const pendingOnce: SettleFault = ({ world }, payment) =>
  after((settled) => {
    world.facilitator.plans.set(payment, { settle: () => before(() => settled as SettleResponse) });
    return { ...(settled as SettleResponse), success: false, errorReason: 'settlement_pending' };
  });

const SETTLE_FAULTS: readonly Attack[] = [
  settling('500 after the broadcast', after('error')),
  settling('the connection is reset after the broadcast', after('reset')),
  settling('HTML after the broadcast', after('garbage')),
  settling('a redirect after the broadcast', after('redirect')),
  settling('no answer after the broadcast', after('hang'), { atOnce: AT_ONCE }),
  settling(
    'the answer comes three seconds late',
    settledBefore(() => sleep(3_000)),
  ),
  settling('`settlement_pending` first, then the true answer', pendingOnce),
  settling('`settlement_pending` after the broadcast, and nothing else', faults.settlementPending),
  settling('`nonce_already_used` after its own broadcast', faults.nonceAlreadyUsed),
  settling('`insufficient_funds`, and it has settled', unfunded),
  settling('500 before a broadcast', before('error')),
  settling('the connection is reset before a broadcast', before('reset')),
  settling('HTML before a broadcast', before('garbage')),
  settling('no answer and no broadcast', before('hang'), { atOnce: AT_ONCE }),
  settling('success without a transaction', faults.onlyClaimed('')),
  settling('success with a transaction that is not there', () => faults.onlyClaimed(unknownTransaction())),
  settling("success with another payment's transaction, nothing sent", foreign),
  settling('success, another transaction is named', () => faults.anotherTransaction(unknownTransaction())),
  settling('success for another payer', () => answering({ payer: unknownAddress() })),
  settling('success on another chain', answering({ network: 'eip155:1' })),
  paidAgain('500 after the broadcast', after('error')),
  paidAgain('reset after the broadcast', after('reset')),
  paidAgain('`settlement_pending`', faults.settlementPending),
  paidAgain('`nonce_already_used`', faults.nonceAlreadyUsed),
];

// Events on the chain, between verification and settlement.

/** A plan that waits for `act` before verification or settlement, which then goes on. */
const beforeIt = (act: (payment: PaymentPayload) => Promise<unknown>) => async (payment: PaymentPayload) => {
  await act(payment);
  return undefined;
};

const meanwhile = (name: string, act: (attempt: Attempt, payment: PaymentPayload) => Promise<unknown>): Attack =>
  failed(name, (attempt) => attempt.buy(attempt.post(), { settle: beforeIt((payment) => act(attempt, payment)) }), {
    waits: true,
  });

/** Executes the authorization without the facilitator. */
async function submit({ world, payer }: Attempt, payment: PaymentPayload): Promise<void> {
  const { authorization: written, signature } = exactOf(payment);
  const { from, to, nonce, value = 0, validAfter = 0, validBefore = 0 } = written;
  const authorization = {
    ...{ from: from as Address, to: to as Address, nonce: nonce as Hex },
    ...{ value: BigInt(value), validAfter: BigInt(validAfter), validBefore: BigInt(validBefore) },
  };
  const { client } = world.chain;
  await chain.included(client, chain.submitAuthorization(client, payer, { authorization, signature }));
}

const CHAIN_EVENTS: readonly Attack[] = [
  meanwhile('the authorization is cancelled between verify and settle', ({ world, payer }, payment) =>
    chain.included(world.chain.client, chain.cancelAuthorization(world.chain.client, payer, nonceOf(payment))),
  ),
  meanwhile('the wallet is emptied between verify and settle', ({ world, payer }) => drain(world.chain.client, payer)),
  meanwhile('the authorization is executed by somebody else before settle', submit),
  failed('one wallet, with money for one, pays five requests at once', async (attempt) => {
    const prepared = await Promise.all(Array.from({ length: 5 }, () => attempt.prepare(attempt.post())));
    await drain(attempt.world.chain.client, attempt.payer, attempt.price);
    await Promise.all(prepared.map(({ paid }) => attempt.politely(paid)));
  }),
  {
    name: "the server's node is away from verify on",
    ...{ right: 'failed', atOnce: AT_ONCE },
    meanwhile: async (target) => target.cutNode(),
    attempt: async (attempt) => {
      const settle = beforeIt(() => attempt.gathering.arrive(attempt));
      const { paid } = await attempt.prepare(attempt.post(), { settle });
      await attempt.send(paid);
      await attempt.gathering.arrive(attempt);
      attempt.target.restoreNode();
      await attempt.politely(paid);
    },
  },
];

// Faults of the speech server. The target restarts: one that has seen failures may skip its upstream for a while.

const speaking = (name: string, manner: upstream.Mode): Attack =>
  failed(
    `speech: the ${name}`,
    async (attempt) => {
      const { paid } = await attempt.prepare(attempt.post(attempt.text(manner)));
      for (const again of [paid, paid]) await attempt.send(again);
    },
    { atOnce: AT_ONCE },
  );

const UPSTREAM_FAULTS: readonly Attack[] = [
  speaking('upstream answers 500', upstream.openAiError(500)),
  speaking('upstream answers nothing', upstream.empty()),
  speaking('upstream answers HTML', upstream.html()),
  speaking('upstream breaks off half way', upstream.resetInBody(audioOf('half').subarray(0, 1_000))),
  speaking('connection is reset', upstream.resetBeforeHeaders()),
  speaking('upstream hangs', upstream.hangBeforeHeaders()),
  speaking(
    'upstream takes three seconds',
    speakAfter(() => sleep(3_000)),
  ),
];

// Callers who disconnect.

const AUDIO_BYTES = audioOf('').length;
/** The server gets this time to start work. */
const SENT: HangUp = { afterMs: 50 };

const leaves = (when: string, leaving: HangUp, manner?: upstream.Mode): Attack =>
  refused(`the caller leaves ${when}`, async (attempt) => {
    const { paid } = await attempt.prepare(attempt.post(attempt.text(manner)));
    await attempt.send(paid, leaving);
    await attempt.politely(paid);
  });

const HANG_UPS: readonly Attack[] = [
  refused('the caller leaves in the middle of its request', async (attempt) => {
    const { paid } = await attempt.prepare(attempt.post());
    const headers = { ...paid.headers, 'content-length': String(paid.body?.length) };
    await attempt.send({ method: 'POST', path: paid.path, headers }, SENT);
    await attempt.politely(paid);
  }),
  leaves('before the answer', SENT),
  leaves(
    'while it is spoken',
    SENT,
    speakAfter(() => sleep(500)),
  ),
  leaves('after half of the answer', { afterBytes: AUDIO_BYTES / 2 }),
  leaves('before the last byte', { afterBytes: AUDIO_BYTES - 1 }),
];

// Crashes: the target is killed while all tries wait at one point, and restarts. Then each client repeats its request.

const killed = (when: string, attempt: Attack['attempt']): Attack => ({
  ...{ name: `kill -9 ${when}`, right: 'broken', atOnce: AT_ONCE, attempt },
  meanwhile: async (target) => {
    await target.kill();
    await target.start();
  },
});

/** The tries wait in a plan of the facilitator, or of the speech server. */
const killedIn = (when: string, plan: (arrive: () => Promise<void>) => Plan & { readonly speak?: upstream.Mode }) =>
  killed(when, async (attempt) => {
    const arrive = () => attempt.gathering.arrive(attempt);
    const { speak, ...planned } = plan(arrive);
    const { paid } = await attempt.prepare(attempt.post(attempt.text(speak)), planned);
    await attempt.send(paid);
    await arrive();
    await attempt.politely(paid);
  });

const once = (act: () => Promise<void>) => {
  let isDone = false;
  return async () => {
    if (isDone) return;
    isDone = true;
    await act();
  };
};

const CRASHES: readonly Attack[] = [
  killed('between the challenge and the payment', async (attempt) => {
    const { paid } = await attempt.prepare(attempt.post());
    await attempt.gathering.arrive(attempt);
    await attempt.politely(paid);
  }),
  killedIn('while the payment is verified', (arrive) => ({ verify: beforeIt(arrive) })),
  killedIn('between verify and settle, while it is spoken', (arrive) => ({ speak: speakAfter(once(arrive)) })),
  killedIn('while the facilitator settles', (arrive) => ({ settle: beforeIt(arrive) })),
  killedIn('between settle and its answer', (arrive) => ({ settle: () => settledBefore(arrive) })),
  killed('after the answer, which is asked for again', async (attempt) => {
    const { paid } = await attempt.prepare(attempt.post());
    await attempt.politely(paid);
    await attempt.gathering.arrive(attempt);
    await attempt.politely(paid);
  }),
];

/** In the order of the table. */
export const ATTACKS: readonly Attack[] = [
  ...REPLAYS,
  ...OTHER_TERMS,
  ...ODD_PAYLOADS,
  ...VERIFY_FAULTS,
  ...SETTLE_FAULTS,
  ...CHAIN_EVENTS,
  ...UPSTREAM_FAULTS,
  ...HANG_UPS,
  ...CRASHES,
];
