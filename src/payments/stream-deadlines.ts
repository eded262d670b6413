import { Roster } from '../lib/roster.ts';

/** What a stream whose audio flows may take in all: far more than any text needs. */
export const MAX_STREAM_MS = 15 * 60_000;

export interface StreamBounds {
  /** Longest wait for the first audio, and for more of it. */
  readonly silenceMs: number;
  /** Longest time from the first to the last moment. */
  readonly totalMs: number;
}

/** The deadline of one stream; its signal fires when the stream is over before its end. */
export class StreamDeadline {
  readonly #controller = new AbortController();
  readonly #silence: NodeJS.Timeout;
  readonly #endsAt: number;
  readonly #forget: () => void;

  constructor(running: Roster<StreamDeadline>, { silenceMs, totalMs }: StreamBounds) {
    this.#silence = setTimeout(() => this.abort(), silenceMs);
    this.#endsAt = performance.now() + totalMs;
    this.#forget = running.add(this);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Audio has come: the silence begins anew. */
  heard(): void {
    if (performance.now() < this.#endsAt) this.#silence.refresh();
    else this.abort();
  }

  /** The stream can't go on, whether or not audio flows. */
  abort(): void {
    this.#controller.abort();
  }

  /** The stream has ended. */
  end(): void {
    clearTimeout(this.#silence);
    this.#forget();
  }
}

/**
 * The deadlines of speech that is heard while it is spoken: only silence ends it soon. Who has heard most of a text that
 * takes long would have heard it for nothing, since what is broken off is not paid.
 */
export class StreamDeadlines {
  readonly #silenceMs: number;
  readonly #totalMs: number;
  readonly #running = new Roster<StreamDeadline>();
  #isOver = false;

  constructor({ silenceMs, totalMs }: StreamBounds) {
    this.#silenceMs = silenceMs;
    this.#totalMs = Math.max(totalMs, silenceMs);
  }

  begin(): StreamDeadline {
    const deadline = new StreamDeadline(this.#running, { silenceMs: this.#silenceMs, totalMs: this.#totalMs });
    if (this.#isOver) deadline.abort();
    return deadline;
  }

  /** The process is stopping: what still runs after the time of a silence is over. */
  stop(): void {
    setTimeout(() => {
      this.#isOver = true;
      for (const deadline of this.#running) deadline.abort();
    }, this.#silenceMs).unref();
  }
}
