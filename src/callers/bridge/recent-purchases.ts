import { createHash } from 'node:crypto';
import type { Purchases } from '../budget/purchases.ts';
import { AudioLostError, type SpeechOrder } from '../client/index.ts';
import { Recording } from './recording.ts';

const RETENTION_MS = 600_000;
const MAX_AUDIO_BYTES = 64 * 1024 * 1024;

export interface RecentPurchase {
  readonly recording: Promise<Recording>;
  /** True if an earlier request has bought it. */
  readonly isRepeated: boolean;
}

interface Entry {
  readonly purchase: Promise<Recording>;
  recording?: Recording;
  timer?: NodeJS.Timeout;
}

/**
 * Programs repeat a request whose response was lost, cut or refused. For ten minutes a repetition gets the purchase of
 * the first request, with its audio or its failure, so that nobody pays twice. The oldest audio goes first.
 */
export class RecentPurchases {
  readonly #purchases: Pick<Purchases, 'resumeOrBuy'>;
  readonly #maxAudioBytes: number;
  /** From the oldest to the newest. */
  readonly #recent = new Map<string, Entry>();

  constructor(purchases: Pick<Purchases, 'resumeOrBuy'>, maxAudioBytes = MAX_AUDIO_BYTES) {
    this.#purchases = purchases;
    this.#maxAudioBytes = maxAudioBytes;
  }

  /** Buys the order even if the program disconnects, or joins the purchase of an equal order. */
  buy(order: SpeechOrder): RecentPurchase {
    const key = createHash('sha256').update(JSON.stringify(order)).digest('base64');
    const recent = this.#recent.get(key);
    if (recent) return { recording: recent.purchase, isRepeated: true };
    const entry: Entry = { purchase: this.#purchases.resumeOrBuy(order).then((speech) => new Recording(speech)) };
    this.#recent.set(key, entry);
    void this.#retain(key, entry);
    return { recording: entry.purchase, isRepeated: false };
  }

  release(): void {
    for (const [key, entry] of this.#recent) {
      void entry.recording?.cancel();
      this.#forget(key, entry);
    }
  }

  async #retain(key: string, entry: Entry): Promise<void> {
    try {
      entry.recording = await entry.purchase;
      const isReleased = this.#recent.get(key) !== entry;
      if (isReleased) await entry.recording.cancel();
      await entry.recording.ended;
      if (isUncharged(entry.recording.failure?.cause)) this.#forget(key, entry);
      this.#dropOldest();
    } catch (error) {
      // The next request resumes an unknown outcome. After any other error nothing was charged.
      if (!(error instanceof AudioLostError) || isUncharged(error)) this.#forget(key, entry);
    }
    if (this.#recent.get(key) !== entry) return;
    entry.timer = setTimeout(() => this.#forget(key, entry), RETENTION_MS).unref();
  }

  #dropOldest(): void {
    let bytes = 0;
    for (const [key, entry] of [...this.#recent].reverse()) {
      bytes += entry.recording?.byteLength ?? 0;
      if (entry.recording?.isEnded && bytes > this.#maxAudioBytes) this.#forget(key, entry);
    }
  }

  #forget(key: string, entry: Entry): void {
    clearTimeout(entry.timer);
    if (this.#recent.get(key) === entry) this.#recent.delete(key);
  }
}

const isUncharged = (error: unknown): boolean => error instanceof AudioLostError && error.chargedMicroUsd === 0n;
