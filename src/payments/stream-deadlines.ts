/** What a stream whose audio flows may take in all: far more than any text needs. */
export const MAX_STREAM_MS = 15 * 60_000;

/** The deadline of one stream; its signal fires when the stream is over before its end. */
export interface StreamDeadline {
  readonly signal: AbortSignal;
  /** Audio has come: the silence begins anew. */
  heard(): void;
  /** The stream can't go on, whether or not audio flows. */
  abort(): void;
  /** The stream has ended. */
  end(): void;
}

export interface StreamBounds {
  /** Longest wait for the first audio, and for more of it. */
  readonly silenceMs: number;
  /** Longest time from the first to the last moment. */
  readonly totalMs: number;
}

/**
 * The deadlines of speech that is heard while it is spoken: only silence ends it soon. Who has heard most of a text that
 * takes long would have heard it for nothing, since what is broken off is not paid.
 */
export class StreamDeadlines {
  readonly #silenceMs: number;
  readonly #totalMs: number;
  readonly #running = new Set<() => void>();
  #isOver = false;

  constructor({ silenceMs, totalMs }: StreamBounds) {
    this.#silenceMs = silenceMs;
    this.#totalMs = Math.max(totalMs, silenceMs);
  }

  begin(): StreamDeadline {
    const controller = new AbortController();
    const abort = () => controller.abort();
    const silence = setTimeout(abort, this.#silenceMs);
    const endsAt = performance.now() + this.#totalMs;
    this.#running.add(abort);
    if (this.#isOver) abort();
    return {
      signal: controller.signal,
      heard: () => {
        if (performance.now() < endsAt) silence.refresh();
        else abort();
      },
      abort,
      end: () => {
        clearTimeout(silence);
        this.#running.delete(abort);
      },
    };
  }

  /** The process is stopping: what still runs after the time of a silence is over. */
  stop(): void {
    setTimeout(() => {
      this.#isOver = true;
      for (const abort of this.#running) abort();
    }, this.#silenceMs).unref();
  }
}
