import pLimit, { type LimitFunction } from 'p-limit';
import type { AudioMemory } from './audio-memory.ts';
import { SpeechError } from './provider.ts';

/** How many may wait, as a share of the permits: the wait is about as long as a synthesis. */
const WAITING_SHARE = 0.25;
const RETRY_AFTER_SECONDS = 5;

/** Bounds concurrent syntheses. A request takes its permit before any hold, and keeps it until its synthesis ends. */
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
