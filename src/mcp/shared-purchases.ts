import type { Purchases } from '../budget/purchases.ts';
import type { SpeakOptions } from '../client/index.ts';
import type { Speech, SpeechOrder } from '../client/speech.ts';

/** Milliseconds after which a host may have given up without saying so; most do after 30 or 60 seconds. */
const LATE_MS = 20_000;
/** Milliseconds for which late speech is held for an agent that asks again. */
const HELD_MS = 600_000;
/** How many are held, each with its audio. */
const MAX_HELD = 16;

type Limits = Pick<SpeakOptions, 'maxMicroUsd'>;

interface Shared {
  readonly speech: Promise<Speech>;
  readonly stop: AbortController;
  waiting: number;
}

/**
 * One purchase for all calls with the same order: a host gives up after a minute, and its agent asks again. Once all have
 * left, the purchase is one whose end is unknown, which the next call with that order resumes.
 */
export class SharedPurchases {
  readonly #purchases: Purchases;
  readonly #lateMs: number;
  /** Those that run, and those that ended late, by the order. */
  readonly #shared = new Map<string, Shared>();
  #held = 0;

  constructor(purchases: Purchases, lateMs = LATE_MS) {
    this.#purchases = purchases;
    this.#lateMs = lateMs;
  }

  /**
   * The speech, and whether an earlier call bought it.
   * @param gone aborts when the host cancels the call
   * @throws SpeechgateError
   */
  async buy(order: SpeechOrder, limits: Limits, gone: AbortSignal): Promise<{ speech: Speech; isShared: boolean }> {
    gone.throwIfAborted();
    const key = JSON.stringify(order);
    const earlier = this.#shared.get(key);
    if (earlier?.stop.signal.aborted) {
      // It becomes one whose end is unknown, to be resumed.
      await earlier.speech.catch(() => {});
      return this.buy(order, limits, gone);
    }
    const shared = earlier ?? this.#start(key, order, limits);
    shared.waiting += 1;
    const leave = () => {
      shared.waiting -= 1;
      if (shared.waiting === 0) shared.stop.abort(gone.reason);
    };
    gone.addEventListener('abort', leave, { once: true });
    try {
      return { speech: await shared.speech, isShared: earlier !== undefined };
    } finally {
      gone.removeEventListener('abort', leave);
    }
  }

  #start(key: string, order: SpeechOrder, limits: Limits): Shared {
    const stop = new AbortController();
    const begunAt = performance.now();
    const speech = this.#purchases.resumeOrBuy(order, { ...limits, signal: stop.signal }).then(whole);
    const shared = { speech, stop, waiting: 0 };
    this.#shared.set(key, shared);
    const drop = () => void this.#shared.delete(key);
    speech.then(() => {
      if (performance.now() - begunAt < this.#lateMs || this.#held >= MAX_HELD) return drop();
      this.#held += 1;
      setTimeout(() => {
        this.#held -= 1;
        drop();
      }, HELD_MS).unref();
    }, drop);
    return shared;
  }
}

/** Its bytes can be read by several. */
async function whole(speech: Speech): Promise<Speech> {
  const bytes = await speech.bytes();
  return { ...speech, bytes: async () => bytes };
}
