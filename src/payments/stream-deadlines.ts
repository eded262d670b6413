type StreamBounds = { readonly silenceMs: number; readonly totalMs: number };

export type StreamDeadline = ReturnType<StreamDeadlines['begin']>;

/** Deadlines of streamed speech. A broken stream is not paid, so only silence ends it soon. */
export class StreamDeadlines {
  readonly #silenceMs: number;
  readonly #totalMs: number;
  readonly #running = new Set<AbortController>();
  #isOver = false;

  constructor({ silenceMs, totalMs }: StreamBounds) {
    this.#silenceMs = silenceMs;
    this.#totalMs = Math.max(totalMs, silenceMs);
  }

  begin() {
    const controller = new AbortController();
    const abort = () => controller.abort();
    const silence = setTimeout(abort, this.#silenceMs);
    const endsAt = performance.now() + this.#totalMs;
    this.#running.add(controller);
    if (this.#isOver) abort();
    return {
      signal: controller.signal,
      abort,
      heard: () => {
        if (performance.now() < endsAt) silence.refresh();
        else abort();
      },
      end: () => {
        clearTimeout(silence);
        this.#running.delete(controller);
      },
    };
  }

  stop(): void {
    setTimeout(() => {
      this.#isOver = true;
      for (const controller of this.#running) controller.abort();
    }, this.#silenceMs).unref();
  }
}
