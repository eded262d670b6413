import {
  OutcomeUnknownError,
  type PendingPurchase,
  ServiceError,
  type SpeakOptions,
  type Speech,
  type Speechgate,
  type SpeechOrder,
} from '../client/index.ts';
import type { FileBudget } from './file-budget.ts';

const MAX_UNKNOWN = 1_000;
const LOST_INTERVAL_MS = 60_000;

export interface WholeAudio {
  readonly contentType: Speech['contentType'];
  readonly bytes: Uint8Array;
}

/** Stores purchases until their audio is delivered, including settled ones. */
export interface SavedSpeech {
  /** Does not replace a saved purchase. */
  save(pending: PendingPurchase): Promise<void>;
  find(identifier: string): Promise<{ readonly pending: PendingPurchase } | undefined>;
  list(): Promise<readonly { readonly pending: PendingPurchase }[]>;
  drop(identifier: string): Promise<void>;
  saveAudio(identifier: string, audio: WholeAudio): Promise<void>;
}

/** Settles lost purchases now and every minute. Returns a function that stops it. */
export function watchLost(
  budget: Pick<FileBudget, 'concludeLost'>,
  client: Parameters<FileBudget['concludeLost']>[0],
  saved?: SavedSpeech,
): () => void {
  let isRunning = false;
  const run = async () => {
    if (isRunning) return;
    isRunning = true;
    await budget.concludeLost(client, saved).catch(() => {});
    isRunning = false;
  };
  void run();
  const timer = setInterval(run, LOST_INTERVAL_MS).unref();
  return () => clearInterval(timer);
}

type Client = Pick<Speechgate, 'speak' | 'resume' | 'resolveOutcome'>;

/** Programs retry after a lost response. A retry gets the purchase with the unknown outcome. */
export class Purchases {
  readonly #client: Client;
  readonly #isDurable: boolean;
  readonly #saved: SavedSpeech | undefined;
  readonly #unknown = new Map<string, PendingPurchase>();
  /** Purchases of `#unknown` whose charge is known, and whose audio was not requested again. */
  readonly #settled = new WeakSet<PendingPurchase>();

  constructor(client: Client, isDurable: boolean, saved?: SavedSpeech) {
    this.#client = client;
    this.#isDurable = isDurable;
    this.#saved = saved;
  }

  async resolveOutcome(): Promise<void> {
    for (const [key, pending] of this.#unknown) {
      if (!this.#settled.has(pending)) await this.#resolveOne(key, pending).catch(() => {});
    }
  }

  forget(identifier: string): void {
    for (const [key, pending] of this.#unknown) if (pending.identifier === identifier) this.#unknown.delete(key);
  }

  /** Resumes the same order if its outcome is unknown. Buys it if there is none, or if nothing was charged. */
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

  async #resume(pending: PendingPurchase, { signal }: Pick<SpeakOptions, 'signal'>): Promise<Speech | undefined> {
    const speech = await this.#client.resume(pending, { ...(signal && { signal }) }).catch((error) => {
      if (!(error instanceof ServiceError)) throw error;
      return error;
    });
    await this.#saved?.drop(pending.identifier).catch(() => {});
    if (!(speech instanceof ServiceError)) return speech;
    // Another purchase would be refused as well.
    if (speech.details?.transient === false) throw speech;
    return undefined;
  }

  async #resolveOne(key: string, pending: PendingPurchase): Promise<void> {
    const conclusion = await this.#client.resolveOutcome(pending);
    await conclusion?.speech?.audio.cancel();
    if (conclusion?.speech) await this.#saved?.save(pending);
    if (conclusion && conclusion.chargedMicroUsd > 0n) this.#settled.add(pending);
    else if (conclusion) this.#unknown.delete(key);
  }
}
