import { randomBytes, randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PaymentPayload, PaymentRequired } from '@x402/core/types';
import type { LocalAccount } from 'viem';
import type { Mode } from '../../test/support/stub-upstream.ts';
import { decodeHeader, encodePayment, officialClient } from '../../test/support/x402.ts';
import { type HangUp, type Heard, Line, type Sent } from '../soak/callers/line.ts';
import type { Target } from './targets.ts';
import { audioOf, nonceOf, type Plan, type World } from './world.ts';

/** Verification, speech and settlement together may take 50 seconds. */
const HUNG_MS = 60_000;
/** How long a client repeats a request, before and after it is known to have paid. */
const TIMEOUT_MS = 3_000;
const INSISTENCE_MS = 30_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 1_000;
/** The peers' fixed price is the price of a text of this length. */
const LENGTH = 60;

export interface Note {
  readonly answer: Heard;
  readonly isPaid: boolean;
  readonly isDelivery: boolean;
}

/** One try of an attack: a client with its own wallet and every response it received. */
export class Attempt {
  readonly notes: Note[] = [];
  /** A client that paid and received nothing repeats these requests. */
  readonly usage = new Set<Sent>();
  readonly nonces: string[] = [];
  /** Price of one text in micro-USD, from the latest challenge. */
  price = 0n;
  readonly #texts = new Map<string, string>();
  readonly #delivered = new Set<string>();
  readonly #line = new Line('gateway one', () => this.target.origin);
  /** Its own address, so that limits by address do not couple clients. */
  readonly #address = `10.${randomInt(256)}.${randomInt(256)}.${randomInt(256)}`;

  constructor(
    readonly world: World,
    readonly target: Target,
    readonly payer: LocalAccount,
    readonly gathering: Gathering,
  ) {}

  /** Complete deliveries: a text by its audio, other goods by name. */
  get delivered(): ReadonlySet<string> {
    return this.#delivered;
  }

  /** Returns a text that no other try uses. @param manner how the speech server treats it */
  text(manner?: Mode, length = LENGTH): string {
    const text = `Text ${randomBytes(12).toString('hex')} of an attack `.padEnd(length, 'a');
    this.#texts.set(audioOf(text).toString('base64'), text);
    if (manner) this.world.manners.set(text, manner);
    return text;
  }

  post(text = this.text(), model?: string): Sent {
    const headers = { 'content-type': 'application/json' };
    return { method: 'POST', path: '/x402/tts', headers, body: JSON.stringify({ text, model }) };
  }

  get(text = this.text()): Sent {
    return { method: 'GET', path: `/x402/tts?text=${encodeURIComponent(text)}` };
  }

  /** Sends a request over a new connection. @param leaving when the client disconnects */
  async send(what: Sent, leaving?: HangUp): Promise<Heard> {
    const headers = { 'x-forwarded-for': this.#address, connection: 'close', ...what.headers };
    const answer = await this.#line.ask({ ...what, headers }, HUNG_MS, leaving);
    if (leaving && (answer.hasHungUp || !answer.isWhole)) return answer;
    const goods = this.#goodsIn(answer, what);
    if (goods !== undefined) this.#delivered.add(goods);
    this.notes.push({ answer, isPaid: 'payment-signature' in headers, isDelivery: goods !== undefined });
    return answer;
  }

  /** Requests without payment. @throws when the response is not a challenge */
  async challenge(what: Sent): Promise<PaymentRequired> {
    const answer = await this.send(what);
    if (!answer.isWhole || answer.status !== 402) throw new Error('There is no challenge.');
    const challenge: PaymentRequired = decodeHeader(String(answer.headers['payment-required']));
    this.price = BigInt(challenge.accepts[0]?.amount ?? 0);
    return challenge;
  }

  /** Signs with the official client, with a payment identifier. @param plan how the facilitator treats the payment */
  async sign(challenge: PaymentRequired, plan: Plan = {}, payer = this.payer, identifier?: string) {
    const payment = await officialClient(payer, identifier).createPaymentPayload(structuredClone(challenge));
    this.world.facilitator.plans.set(payment, plan);
    this.nonces.push(nonceOf(payment));
    return payment;
  }

  /** The request with a payment, or with a header that may be none. */
  paid(what: Sent, payment: PaymentPayload | string | readonly string[]): Sent {
    const isHeader = typeof payment === 'string' || Array.isArray(payment);
    const header = isHeader ? (payment as string) : encodePayment(payment);
    const paid = { ...what, headers: { ...what.headers, 'payment-signature': header } };
    this.usage.add(paid);
    return paid;
  }

  /** Requests a challenge and signs a payment, but does not send the paid request. */
  async prepare(what: Sent, plan?: Plan): Promise<{ readonly paid: Sent; readonly payment: PaymentPayload }> {
    const payment = await this.sign(await this.challenge(what), plan);
    return { paid: this.paid(what, payment), payment };
  }

  /** Repeats a request until it is served or refused for good, as a careful client does after it may have paid. */
  async politely(what: Sent): Promise<Heard> {
    const giveUpAt = performance.now() + TIMEOUT_MS;
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      const answer = await this.send(what);
      if (isFinal(answer) || performance.now() > giveUpAt) return answer;
      await sleep(pause);
    }
  }

  /** Repeats all paid requests until one is served, whatever the responses say. */
  async insist(): Promise<void> {
    for (
      const giveUpAt = performance.now() + INSISTENCE_MS;
      performance.now() < giveUpAt;
      await sleep(LONGEST_PAUSE_MS)
    ) {
      for (const paid of this.usage) await this.send(paid);
      if (this.#delivered.size > 0) return;
    }
  }

  #goodsIn(answer: Heard, { path }: Sent): string | undefined {
    if (!answer.isWhole || answer.status !== 200) return undefined;
    return this.#texts.get(answer.body.toString('base64')) ?? (path === '/x402/deposit' ? 'deposit' : undefined);
  }

  async buy(what: Sent = this.post(), plan?: Plan): Promise<Heard> {
    return this.politely((await this.prepare(what, plan)).paid);
  }
}

/** 409: the first request still runs or its outcome is unknown. 429 and 5xx: the client may retry. */
const isFinal = (answer: Heard): boolean =>
  answer.hasHungUp || (answer.isWhole && answer.status !== 409 && answer.status !== 429 && answer.status < 500);

/** A barrier: tries wait at one point until `happen` has acted on all of them at once. */
export class Gathering {
  readonly #expected: number;
  readonly #arrived = new Set<unknown>();
  #begin: () => void = () => {};
  readonly #happened: Promise<unknown>;

  /** @param expected number of tries that have to arrive */
  constructor(expected: number, happen: () => Promise<unknown>) {
    this.#expected = expected;
    this.#happened = new Promise<void>((resolve) => {
      this.#begin = resolve;
    }).then(happen);
    // `arrive` still rejects.
    this.#happened.catch(() => {});
  }

  /** Resolves after `happen`. A repeated arrival counts once. @param timeoutMs how long to wait for missing tries */
  async arrive(who: unknown, timeoutMs = 8_000): Promise<void> {
    if (this.#arrived.size === 0) void sleep(timeoutMs).then(this.#begin);
    this.#arrived.add(who);
    if (this.#arrived.size >= this.#expected) this.#begin();
    await this.#happened;
  }
}
