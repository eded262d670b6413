import { randomBytes, randomInt } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PaymentPayload, PaymentRequired } from '@x402/core/types';
import type { LocalAccount } from 'viem';
import { decodeHeader, encodePayment, officialClient } from '../test/support/x402.ts';
import type { Gathering } from './gathering.ts';
import { type Answer, type Ask, ask, type Leaving } from './http.ts';
import { nonceOf, type Plan } from './servers/facilitator.ts';
import { audioOf, type Manner } from './servers/upstream.ts';
import type { Target } from './targets/target.ts';
import type { World } from './world.ts';

/** Without an answer for so long, a request counts as hung: verification, speech and settlement may take 50 seconds. */
const HUNG_MS = 60_000;
/** How long a client repeats a request that came to nothing, and how long once it is known to have paid. */
const PATIENCE_MS = 3_000;
const INSISTENCE_MS = 30_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 1_000;
/** Characters of a text: the peers' price is that of such a one. */
const LENGTH = 60;

/** What came of a request. */
export interface Note {
  readonly answer: Answer;
  readonly isPaid: boolean;
  /** It is a 200 with something that was asked for. */
  readonly isDelivery: boolean;
}

/** One try of an attack: a client with a wallet of its own, and all that it was answered. */
export class Attempt {
  readonly notes: Note[] = [];
  /** Of whom payments count. */
  readonly payers: LocalAccount[];
  /** What was sent with a payment: a client goes on repeating it, should it have paid for nothing. */
  readonly paidFor = new Set<Ask>();
  /** Of the authorizations that were signed. */
  readonly nonces: string[] = [];
  /** What one text costs, in micro-USD, as it was last asked for. */
  price = 0n;
  readonly #texts = new Map<string, string>();
  readonly #delivered = new Set<string>();
  readonly #hungMs: number;
  /** Where limits count by address, a client has its own. */
  readonly #address = `10.${randomInt(256)}.${randomInt(256)}.${randomInt(256)}`;

  constructor(
    readonly world: World,
    readonly target: Target,
    readonly payer: LocalAccount,
    readonly gathering: Gathering,
    hungMs = HUNG_MS,
  ) {
    this.#hungMs = hungMs;
    this.payers = [payer];
  }

  /** What arrived whole: texts by their audio, and other goods by their names. */
  get delivered(): ReadonlySet<string> {
    return this.#delivered;
  }

  /** A text that nobody else has spoken. @param manner how the speech server behaves for it */
  text(manner?: Manner, length = LENGTH): string {
    const text = `Text ${randomBytes(12).toString('hex')} of an attack `.padEnd(length, 'a');
    this.#texts.set(audioOf(text).toString('base64'), text);
    if (manner) this.world.upstream.manners.set(text, manner);
    return text;
  }

  post(text = this.text(), model?: string): Ask {
    const headers = { 'content-type': 'application/json' };
    return { method: 'POST', path: '/x402/tts', headers, body: JSON.stringify({ text, model }) };
  }

  get(text = this.text()): Ask {
    return { method: 'GET', path: `/x402/tts?text=${encodeURIComponent(text)}` };
  }

  /** Sends a request, and notes what came. */
  async send(what: Ask, leaving?: Leaving): Promise<Answer> {
    const headers: OutgoingHttpHeaders = { 'x-forwarded-for': this.#address, ...what.headers };
    const answer = await ask(this.target.origin, { ...what, headers }, this.#hungMs, leaving);
    if (leaving && answer.outcome === 'broken') return answer;
    const goods = this.#goodsIn(answer, what);
    if (goods !== undefined) this.#delivered.add(goods);
    this.notes.push({ answer, isPaid: 'payment-signature' in headers, isDelivery: goods !== undefined });
    return answer;
  }

  /** The challenge of a request without payment; throws when the answer is none. */
  async challenge(what: Ask): Promise<PaymentRequired> {
    const answer = await this.send(what);
    if (answer.outcome !== 'answered' || answer.status !== 402) throw new Error('There is no challenge.');
    const challenge: PaymentRequired = decodeHeader(String(answer.headers['payment-required']));
    this.price = BigInt(challenge.accepts[0]?.amount ?? 0);
    return challenge;
  }

  /** A payment as the official client makes it, with an identifier. @param plan how the facilitator treats it */
  async sign(challenge: PaymentRequired, plan: Plan = {}, payer = this.payer, identifier?: string) {
    const payment = await officialClient(payer, identifier).createPaymentPayload(structuredClone(challenge));
    this.world.facilitator.plans.set(payment, plan);
    this.nonces.push(nonceOf(payment));
    return payment;
  }

  /** A request that was paid for. */
  paid(what: Ask, payment: PaymentPayload | string): Ask {
    const header = typeof payment === 'string' ? payment : encodePayment(payment);
    const paid = { ...what, headers: { ...what.headers, 'payment-signature': header } };
    this.paidFor.add(paid);
    return paid;
  }

  /** Challenge, payment, and the request with it, which is not sent yet. */
  async prepare(what: Ask, plan?: Plan): Promise<{ readonly paid: Ask; readonly payment: PaymentPayload }> {
    const payment = await this.sign(await this.challenge(what), plan);
    return { paid: this.paid(what, payment), payment };
  }

  /** Repeats a request until it is served or refused for good, as a client does that has paid or may have. */
  async politely(what: Ask): Promise<Answer> {
    const giveUpAt = performance.now() + PATIENCE_MS;
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      const answer = await this.send(what);
      if (isFinal(answer) || performance.now() > giveUpAt) return answer;
      await sleep(pause);
    }
  }

  /** Repeats what was paid for until something of it is served, whatever else is said. */
  async insist(): Promise<void> {
    for (
      const giveUpAt = performance.now() + INSISTENCE_MS;
      performance.now() < giveUpAt;
      await sleep(LONGEST_PAUSE_MS)
    ) {
      for (const paid of this.paidFor) await this.send(paid);
      if (this.#delivered.size > 0) return;
    }
  }

  #goodsIn(answer: Answer, { path }: Ask): string | undefined {
    if (answer.outcome !== 'answered' || answer.status !== 200) return undefined;
    return this.#texts.get(answer.bytes.toString('base64')) ?? (path === '/x402/deposit' ? 'deposit' : undefined);
  }

  /** Prepares, and pays politely. */
  async buy(what: Ask = this.post(), plan?: Plan): Promise<Answer> {
    return this.politely((await this.prepare(what, plan)).paid);
  }
}

/** 409 says that the first request runs, or that its end is not known yet; 429 and 5xx say that it may be repeated. */
const isFinal = (answer: Answer): boolean =>
  answer.outcome === 'hung' ||
  (answer.outcome === 'answered' && answer.status !== 409 && answer.status !== 429 && answer.status < 500);
