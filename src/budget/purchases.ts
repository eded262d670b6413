import { once } from 'node:events';
import { OutcomeUnknownError, ServiceError, type SpeakOptions, type Speechgate } from '../client/index.ts';
import type { PendingPurchase } from '../client/pending-purchase.ts';
import type { Speech, SpeechOrder } from '../client/speech.ts';
import type { KeptSpeech } from './kept-speech.ts';

/** How many are remembered. */
const MAX_UNKNOWN = 1_000;
/** How many are held for programs that left, each with its audio. */
const MAX_ABANDONED = 16;
/** Milliseconds for which they are held. */
const HELD_MS = 120_000;

type Client = Pick<Speechgate, 'speak' | 'resume' | 'conclude'>;

/** What was bought for a program that left before it had anything of it. */
interface Abandoned {
  readonly speech: Promise<Speech>;
  end(isTaken: boolean): void;
}

/**
 * Buys speech. Programs ask for the same again where an answer was lost or late: they get the purchase whose end is
 * unknown, or that they have left, instead of a second one.
 */
export class Purchases {
  readonly #client: Client;
  readonly #isDurable: boolean;
  readonly #kept: KeptSpeech | undefined;
  /** By the order. */
  readonly #unknown = new Map<string, PendingPurchase>();
  /** By the order. */
  readonly #abandoned = new Map<string, Abandoned>();
  /** Those whose charge is known by now, and whose audio nobody has asked for. */
  readonly #settled = new WeakSet<PendingPurchase>();

  constructor(client: Client, isDurable: boolean, kept?: KeptSpeech) {
    this.#client = client;
    this.#isDurable = isDurable;
    this.#kept = kept;
  }

  /**
   * Speech for a program; null when it left, and nothing was bought, or the next one that asked for the same has it.
   * @param gone aborts when the program leaves
   * @throws SpeechgateError
   */
  async buy(order: SpeechOrder, gone: AbortSignal): Promise<Speech | null> {
    if (gone.aborted) return null;
    const key = JSON.stringify(order);
    const abandoned = this.#abandoned.get(key);
    abandoned?.end(true);
    const speech = abandoned?.speech ?? this.resumeOrBuy(order);
    const heard = new AbortController();
    await Promise.race([speech.catch(() => {}), once(gone, 'abort', { signal: heard.signal }).catch(() => {})]);
    heard.abort();
    return gone.aborted ? this.#abandon(key, speech) : speech;
  }

  /** Finds out what those have cost whose end is unknown, so that the budget need not hold it back any longer. */
  async conclude(): Promise<void> {
    for (const [key, pending] of this.#unknown) {
      // One that the service can't be asked about holds up no other.
      if (!this.#settled.has(pending)) await this.#concludeOne(key, pending).catch(() => {});
    }
  }

  /** Takes out a purchase that was resumed by its identifier. */
  forget(identifier: string): void {
    for (const [key, pending] of this.#unknown) if (pending.identifier === identifier) this.#unknown.delete(key);
  }

  /** Holds nothing any longer for programs that left. */
  release(): void {
    for (const abandoned of [...this.#abandoned.values()]) abandoned.end(false);
  }

  /**
   * The speech of the same order whose end is unknown, or else, once nothing was charged for that, a new purchase.
   * @throws SpeechgateError
   */
  async resumeOrBuy(order: SpeechOrder, options: Omit<SpeakOptions, 'durable'> = {}): Promise<Speech> {
    const key = JSON.stringify(order);
    const pending = this.#unknown.get(key);
    this.#unknown.delete(key);
    try {
      const resumed = pending && (await this.#resume(pending, options));
      return resumed ?? (await this.#client.speak(order, { ...options, durable: this.#isDurable }));
    } catch (error) {
      if (error instanceof OutcomeUnknownError && this.#unknown.size < MAX_UNKNOWN) {
        this.#unknown.set(key, error.pending);
      }
      throw error;
    }
  }

  /** Undefined when nothing was charged. */
  async #resume(pending: PendingPurchase, { signal }: Pick<SpeakOptions, 'signal'>): Promise<Speech | undefined> {
    const speech = await this.#client.resume(pending, { ...(signal && { signal }) }).catch((error) => {
      if (!(error instanceof ServiceError)) throw error;
      return undefined;
    });
    await this.#kept?.drop(pending.identifier).catch(() => {});
    return speech;
  }

  async #concludeOne(key: string, pending: PendingPurchase): Promise<void> {
    const conclusion = await this.#client.conclude(pending);
    await conclusion?.speech?.audio.cancel();
    if (conclusion?.speech) await this.#kept?.keep(pending);
    if (conclusion && conclusion.chargedMicroUsd > 0n) this.#settled.add(pending);
    else if (conclusion) this.#unknown.delete(key);
  }

  /** Holds it for whoever asks for the same; null once somebody has taken it. */
  async #abandon(key: string, speech: Promise<Speech>): Promise<Speech | null> {
    if (this.#abandoned.size >= MAX_ABANDONED || this.#abandoned.has(key)) return speech;
    let isTaken = false;
    // Audio that waits for long is cut by the service: it is taken out of the line, unless somebody has it by then.
    const stop = new AbortController();
    const held = speech.then((bought) => (isTaken ? bought : whole(bought, stop.signal)));
    await new Promise<void>((resolve) => {
      const end = (taken: boolean) => {
        clearTimeout(timer);
        isTaken = taken;
        if (!taken) stop.abort();
        this.#abandoned.delete(key);
        resolve();
      };
      const timer = setTimeout(end, HELD_MS, false).unref();
      this.#abandoned.set(key, { speech: held, end });
      held.catch(() => {
        if (!isTaken) end(false);
      });
    });
    return isTaken ? null : held;
  }
}

/** Read to its end, or until nobody can ask for it any more. */
async function whole(speech: Speech, signal: AbortSignal): Promise<Speech> {
  const parts: Uint8Array[] = [];
  const sink = new WritableStream<Uint8Array>({ write: (part) => void parts.push(part) });
  await speech.audio.pipeTo(sink, { signal }).catch((error) => {
    if (!signal.aborted) throw error;
  });
  const bytes = Buffer.concat(parts);
  return { ...speech, audio: new Response(bytes).body as Speech['audio'], bytes: async () => bytes };
}
