import pLimit, { type LimitFunction } from 'p-limit';
import { SpeechError } from './provider.ts';

/** How many may wait, as a share of the permits: the wait is about as long as a synthesis. */
const WAITING_SHARE = 0.25;
const RETRY_AFTER_SECONDS = 5;

/** Bounds concurrent syntheses (R9). A request takes its permit before any hold, and keeps it until its synthesis ends. */
export class SynthesisPermits {
  readonly #limit: LimitFunction;
  readonly #maxWaiting: number;
  readonly #memory: AudioMemory;
  readonly #onRefused: (reason: 'work' | 'memory') => void;

  /**
   * @param memory while it is full of audio that callers have not read, nothing new is synthesized (R55)
   * @param onRefused called with what is exhausted
   */
  constructor(max: number, memory: AudioMemory, onRefused: (reason: 'work' | 'memory') => void = () => {}) {
    this.#onRefused = onRefused;
    this.#memory = memory;
    this.#limit = pLimit(max);
    this.#maxWaiting = Math.ceil(max * WAITING_SHARE);
  }

  get taken(): number {
    return this.#limit.activeCount;
  }

  /** Waits for a permit and returns its release, or an error if too many requests wait or too much audio is unread. */
  async take(): Promise<(() => void) | SpeechError> {
    if (this.#limit.pendingCount >= this.#maxWaiting)
      return this.#refuse('work', 'The service is synthesizing as many texts as it can.');
    if (this.#memory.isFull)
      return this.#refuse('memory', 'The memory of the service is full of audio that callers have not received yet.');
    return new Promise((granted) => {
      this.#limit(() => new Promise<void>(granted));
    });
  }

  #refuse(reason: 'work' | 'memory', why: string): SpeechError {
    this.#onRefused(reason);
    return new SpeechError('TTS_UNAVAILABLE', why, true, RETRY_AFTER_SECONDS);
  }
}

/** At this multiple of the bound, the caller with the most unread audio is given up. */
const GIVE_UP_AT = 2;

export interface Share {
  /** @param bytes negative for bytes that were read */
  add(bytes: number): void;
  release(): void;
}

/** Counts audio that callers have not read. At the bound no new work starts (R55); at twice, the largest is dropped. */
export class AudioMemory {
  readonly #maxBytes: number;
  readonly #holders = new Set<{ bytes: number; giveUp?: (() => void) | undefined }>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get isFull(): boolean {
    return this.#bytes >= this.#maxBytes;
  }

  /** Counts a response that is sent as a whole, until it ends. */
  countWhole(bytes: number, response: { onEnd(listener: () => void): void; abort(): void }): void {
    const share = this.share(() => response.abort());
    response.onEnd(() => share.release());
    share.add(bytes);
  }

  /** @param giveUp drops everything counted here and releases the share; omit it for work that ends soon */
  share(giveUp?: () => void): Share {
    const holder = { bytes: 0, giveUp };
    this.#holders.add(holder);
    return {
      add: (bytes) => {
        if (!this.#holders.has(holder)) return;
        holder.bytes += bytes;
        this.#bytes += bytes;
        if (bytes > 0 && this.#bytes > this.#maxBytes * GIVE_UP_AT) this.#giveUpLargest();
      },
      release: () => {
        if (this.#holders.delete(holder)) this.#bytes -= holder.bytes;
      },
    };
  }

  #giveUpLargest(): void {
    const slow = [...this.#holders].filter(({ giveUp }) => giveUp).sort((one, other) => other.bytes - one.bytes);
    const bytes = slow.reduce((sum, holder) => sum + holder.bytes, 0);
    if (bytes > this.#maxBytes * GIVE_UP_AT) slow[0]?.giveUp?.();
  }
}
