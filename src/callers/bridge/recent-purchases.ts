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

/**
 * Programs repeat a request whose response was lost, cut or refused. For ten minutes a repetition gets the purchase of
 * the first request, with its audio or its failure, so that nobody pays twice. The oldest audio goes first.
 */
export class RecentPurchases {
  readonly #purchases: Pick<Purchases, 'resumeOrBuy'>;
  readonly #maxAudioBytes: number;
  /** From the oldest to the newest. */
  readonly #recent = new Map<string, Promise<Recording>>();
  readonly #recordings = new Map<Promise<Recording>, Recording>();

  constructor(purchases: Pick<Purchases, 'resumeOrBuy'>, maxAudioBytes = MAX_AUDIO_BYTES) {
    this.#purchases = purchases;
    this.#maxAudioBytes = maxAudioBytes;
  }

  /** Buys the order even if the program disconnects, or joins the purchase of an equal order. */
  buy(order: SpeechOrder): RecentPurchase {
    const key = createHash('sha256').update(JSON.stringify(order)).digest('base64');
    const recent = this.#recent.get(key);
    if (recent) return { recording: recent, isRepeated: true };
    const recording = this.#purchases.resumeOrBuy(order).then((speech) => new Recording(speech));
    this.#recent.set(key, recording);
    void this.#retain(key, recording);
    return { recording, isRepeated: false };
  }

  release(): void {
    for (const recording of this.#recordings.values()) void recording.cancel();
  }

  async #retain(key: string, purchase: Promise<Recording>): Promise<void> {
    try {
      const recording = await purchase;
      this.#recordings.set(purchase, recording);
      await recording.ended;
      this.#dropOldest();
    } catch (error) {
      // The next request resumes an unknown outcome. After any other error nothing was charged.
      if (!(error instanceof AudioLostError)) return this.#forget(key, purchase);
    }
    setTimeout(() => this.#forget(key, purchase), RETENTION_MS).unref();
  }

  #dropOldest(): void {
    let bytes = 0;
    for (const [key, purchase] of [...this.#recent].reverse()) {
      const recording = this.#recordings.get(purchase);
      bytes += recording?.byteLength ?? 0;
      if (recording?.isEnded && bytes > this.#maxAudioBytes) this.#forget(key, purchase);
    }
  }

  #forget(key: string, purchase: Promise<Recording>): void {
    if (this.#recent.get(key) === purchase) this.#recent.delete(key);
    this.#recordings.delete(purchase);
  }
}
