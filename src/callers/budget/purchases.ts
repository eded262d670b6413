import { createHash } from 'node:crypto';
import {
  AudioLostError,
  OutcomeUnknownError,
  type PendingPurchase,
  ServiceError,
  type SpeakOptions,
  type Speech,
  type Speechgate,
  type SpeechOrder,
} from '../client/index.ts';
import type { FileBudget } from './file-budget.ts';
import { Recording } from './recording.ts';

const MAX_UNKNOWN = 1_000;
const LOST_INTERVAL_MS = 60_000;
const RETENTION_MS = 600_000;
const MAX_AUDIO_BYTES = 64 * 1024 * 1024;

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

export interface PurchasesOptions {
  /** Card credit only: buys jobs, whose audio can be fetched again. */
  readonly isDurable: boolean;
  readonly saved?: SavedSpeech | undefined;
  /** Audio that took less time is not delivered again. Default: 0. */
  readonly lateMs?: number | undefined;
  /** Whether an order whose charged audio was lost fails again instead of being bought again. */
  readonly repeatsLoss?: boolean;
  readonly maxAudioBytes?: number;
}

interface Recent {
  readonly purchase: Promise<Recording>;
  readonly stop: AbortController;
  waiting: number;
  recording?: Recording;
  timer?: NodeJS.Timeout;
}

/**
 * Programs and agents repeat a request whose response was lost, cut or late. A repetition joins the first purchase: while
 * it runs, for ten minutes after it, and by resuming it if its outcome is unknown. So nobody pays twice. The oldest
 * audio goes first.
 */
export class Purchases {
  readonly #client: Pick<Speechgate, 'speak' | 'resume' | 'resolveOutcome'>;
  readonly #options: PurchasesOptions;
  /** From the oldest to the newest. */
  readonly #recent = new Map<string, Recent>();
  readonly #unknown = new Map<string, PendingPurchase>();
  /** Purchases of `#unknown` whose charge is known, and whose audio was not requested again. */
  readonly #settled = new WeakSet<PendingPurchase>();
  #isReleased = false;

  constructor(client: Pick<Speechgate, 'speak' | 'resume' | 'resolveOutcome'>, options: PurchasesOptions) {
    this.#client = client;
    this.#options = options;
  }

  /**
   * Once the signals of all callers have aborted, the outcome is unknown. Without a signal the purchase always ends.
   * `isRepeated`: an earlier request has bought it.
   */
  buy(
    order: SpeechOrder,
    { signal, maxMicroUsd }: Pick<SpeakOptions, 'signal' | 'maxMicroUsd'> = {},
  ): { readonly recording: Promise<Recording>; readonly isRepeated: boolean } {
    signal?.throwIfAborted();
    const key = createHash('sha256').update(JSON.stringify(order)).digest('base64');
    const former = this.#recent.get(key);
    const isRepeated = former !== undefined && !former.stop.signal.aborted;
    const recent = isRepeated ? former : this.#start(key, order, maxMicroUsd, former);
    recent.waiting += 1;
    const leave = () => {
      recent.waiting -= 1;
      if (recent.waiting === 0) recent.stop.abort(signal?.reason);
    };
    signal?.addEventListener('abort', leave, { once: true });
    const stay = () => signal?.removeEventListener('abort', leave);
    recent.purchase.then(stay, stay);
    return { recording: recent.purchase, isRepeated };
  }

  /** @param aborted resumed or delivered once it has ended */
  #start(key: string, order: SpeechOrder, maxMicroUsd: bigint | undefined, aborted: Recent | undefined): Recent {
    const stop = new AbortController();
    const limits = maxMicroUsd === undefined ? {} : { maxMicroUsd };
    const buy = async () => new Recording(await this.#resumeOrBuy(key, order, { ...limits, signal: stop.signal }));
    const recent: Recent = { purchase: aborted ? aborted.purchase.catch(buy) : buy(), stop, waiting: 0 };
    this.#recent.set(key, recent);
    void this.#retain(key, recent);
    return recent;
  }

  async #retain(key: string, recent: Recent): Promise<void> {
    const { lateMs = 0, repeatsLoss = false } = this.#options;
    const startedAt = performance.now();
    const failure = await this.#failureOf(recent);
    const isCharged = failure?.cause instanceof AudioLostError && failure.cause.chargedMicroUsd !== 0n;
    const isRetained = failure ? repeatsLoss && isCharged : performance.now() - startedAt >= lateMs;
    if (!isRetained) this.#forget(key, recent);
    this.#dropOldest();
    if (this.#recent.get(key) !== recent) return;
    recent.timer = setTimeout(() => this.#forget(key, recent), RETENTION_MS).unref();
  }

  async #failureOf(recent: Recent): Promise<Recording['failure']> {
    try {
      recent.recording = await recent.purchase;
      if (this.#isReleased) await recent.recording.cancel();
      await recent.recording.ended;
      return recent.recording.failure;
    } catch (cause) {
      return { cause };
    }
  }

  #dropOldest(): void {
    const { maxAudioBytes = MAX_AUDIO_BYTES } = this.#options;
    let bytes = 0;
    for (const [key, recent] of [...this.#recent].reverse()) {
      bytes += recent.recording?.byteLength ?? 0;
      if (recent.recording?.isEnded && bytes > maxAudioBytes) this.#forget(key, recent);
    }
  }

  #forget(key: string, recent: Recent): void {
    clearTimeout(recent.timer);
    if (this.#recent.get(key) === recent) this.#recent.delete(key);
  }

  /** Cuts the audio that is still read. */
  release(): void {
    this.#isReleased = true;
    for (const [key, recent] of this.#recent) {
      void recent.recording?.cancel();
      this.#forget(key, recent);
    }
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
  async #resumeOrBuy(key: string, order: SpeechOrder, options: SpeakOptions): Promise<Speech> {
    const pending = this.#unknown.get(key);
    this.#unknown.delete(key);
    try {
      const resumed = pending && (await this.#resume(pending, options));
      return resumed ?? (await this.#client.speak(order, { ...options, durable: this.#options.isDurable }));
    } catch (error) {
      if (error instanceof OutcomeUnknownError && this.#unknown.size < MAX_UNKNOWN) {
        this.#unknown.set(key, error.pending);
      }
      throw error;
    }
  }

  async #resume(pending: PendingPurchase, { signal }: SpeakOptions): Promise<Speech | undefined> {
    const speech = await this.#client.resume(pending, { ...(signal && { signal }) }).catch((error) => {
      if (!(error instanceof ServiceError)) throw error;
      return error;
    });
    await this.#options.saved?.drop(pending.identifier).catch(() => {});
    if (!(speech instanceof ServiceError)) return speech;
    // Another purchase would be refused as well.
    if (speech.details?.transient === false) throw speech;
    return undefined;
  }

  async #resolveOne(key: string, pending: PendingPurchase): Promise<void> {
    const conclusion = await this.#client.resolveOutcome(pending);
    await conclusion?.speech?.audio.cancel();
    if (conclusion?.speech) await this.#options.saved?.save(pending);
    if (conclusion && conclusion.chargedMicroUsd > 0n) this.#settled.add(pending);
    else if (conclusion) this.#unknown.delete(key);
  }
}
