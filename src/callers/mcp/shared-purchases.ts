import type { Purchases } from '../budget/purchases.ts';
import type { Speech, SpeechOrder } from '../client/index.ts';

/** Most hosts time out after 30 or 60 seconds, often without cancelling the call. */
const LATE_MS = 20_000;
const RETENTION_MS = 600_000;
const MAX_RETAINED = 16;

interface Shared {
  readonly speech: Promise<Speech>;
  readonly stop: AbortController;
  waiting: number;
}

/**
 * Equal calls share one purchase, because agents repeat a call that timed out. Once all calls are cancelled, the
 * outcome is unknown. The next call resumes it.
 */
export class SharedPurchases {
  readonly #purchases: Purchases;
  readonly #lateMs: number;
  readonly #shared = new Map<string, Shared>();
  #retained = 0;

  constructor(purchases: Purchases, lateMs = LATE_MS) {
    this.#purchases = purchases;
    this.#lateMs = lateMs;
  }

  /** @param cancelled aborts when the host cancels the call */
  async buy(
    order: SpeechOrder,
    maxMicroUsd: bigint | undefined,
    cancelled: AbortSignal,
  ): Promise<{ speech: Speech; isShared: boolean }> {
    cancelled.throwIfAborted();
    const key = JSON.stringify(order);
    const running = this.#shared.get(key);
    if (running?.stop.signal.aborted) {
      // Wait until it is recorded as an unknown outcome, then resume it.
      await running.speech.catch(() => {});
      return this.buy(order, maxMicroUsd, cancelled);
    }
    const shared = running ?? this.#start(key, order, maxMicroUsd);
    shared.waiting += 1;
    const onCancel = () => {
      shared.waiting -= 1;
      if (shared.waiting === 0) shared.stop.abort(cancelled.reason);
    };
    cancelled.addEventListener('abort', onCancel, { once: true });
    try {
      return { speech: await shared.speech, isShared: running !== undefined };
    } finally {
      cancelled.removeEventListener('abort', onCancel);
    }
  }

  #start(key: string, order: SpeechOrder, maxMicroUsd: bigint | undefined): Shared {
    const stop = new AbortController();
    const startedAt = performance.now();
    const limits = maxMicroUsd === undefined ? {} : { maxMicroUsd };
    const speech = this.#purchases.resumeOrBuy(order, { ...limits, signal: stop.signal }).then(whole);
    const shared = { speech, stop, waiting: 0 };
    this.#shared.set(key, shared);
    const forget = () => void this.#shared.delete(key);
    speech.then(() => {
      if (performance.now() - startedAt < this.#lateMs || this.#retained >= MAX_RETAINED) return forget();
      this.#retained += 1;
      setTimeout(() => {
        this.#retained -= 1;
        forget();
      }, RETENTION_MS).unref();
    }, forget);
    return shared;
  }
}

async function whole(speech: Speech): Promise<Speech> {
  const bytes = await speech.bytes();
  return { ...speech, bytes: async () => bytes };
}
