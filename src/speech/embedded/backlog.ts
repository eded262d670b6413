import { SpeechError } from '../provider.ts';

/** What the pace is taken for before anything was spoken: milliseconds for a second of longestSeconds(). */
const FIRST_PACE = 10;
/** How much of what is known of the pace an utterance leaves to the next one. */
const MEMORY = 0.8;
const FULL = 'The embedded voice has too many texts waiting; try again later';

/** One utterance that waits, is being spoken, or was promised to be. */
export interface Text {
  /** A thread speaks it now. */
  begin(): void;
  /** It is over. Only the first call counts. */
  end(isSpoken: boolean): void;
}

/** How much there is to speak, and how long that is going to take at the pace of the texts before it. */
export class Backlog {
  readonly #texts = new Set<{ readonly seconds: number; startedAt: number | undefined }>();
  #spokenMs = FIRST_PACE;
  #spokenSeconds = 1;
  readonly #workers: number;
  readonly #maxTexts: number;
  readonly #maxWaitMs: number;

  /**
   * @param workers how many texts are spoken at a time
   * @param maxTexts how many there may be in all
   * @param maxWaitMs how long a text may have to wait for its turn
   */
  constructor(workers: number, maxTexts: number, maxWaitMs: number) {
    this.#workers = workers;
    this.#maxTexts = maxTexts;
    this.#maxWaitMs = maxWaitMs;
  }

  /** Counts a text of at most so many seconds if its turn comes soon enough; else tells when there should be room. */
  admit(seconds: number): Text | SpeechError {
    const waitMs = this.#expectedWaitMs();
    if (waitMs <= this.#maxWaitMs && this.#texts.size < this.#maxTexts) return this.add(seconds);
    const retryAfterSeconds = Math.max(1, Math.ceil((waitMs - this.#maxWaitMs) / 1000));
    return new SpeechError('TTS_UNAVAILABLE', FULL, true, retryAfterSeconds);
  }

  /** Counts a text that waits for as long as it must. */
  add(seconds: number): Text {
    const text = { seconds, startedAt: undefined as number | undefined };
    this.#texts.add(text);
    return {
      begin: () => {
        text.startedAt = performance.now();
      },
      end: (isSpoken) => {
        if (!this.#texts.delete(text) || !isSpoken || text.startedAt === undefined) return;
        this.#spokenMs = this.#spokenMs * MEMORY + performance.now() - text.startedAt;
        this.#spokenSeconds = this.#spokenSeconds * MEMORY + seconds;
      },
    };
  }

  #expectedWaitMs(): number {
    if (this.#texts.size < this.#workers) return 0;
    const pace = this.#spokenMs / this.#spokenSeconds;
    const now = performance.now();
    let aheadMs = 0;
    for (const { seconds, startedAt } of this.#texts) {
      aheadMs += Math.max(0, seconds * pace - (startedAt === undefined ? 0 : now - startedAt));
    }
    return aheadMs / this.#workers;
  }
}
