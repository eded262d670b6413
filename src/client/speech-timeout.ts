import type { Api } from './api.ts';
import { withDeadline } from './waiting.ts';

/** Milliseconds that an answer with speech may take at least. */
const LEAST_MS = 120_000;
/** Milliseconds beyond the service's own timeout. */
const MARGIN_MS = 30_000;
/** Milliseconds in which the service has to tell its timeout. */
const DEADLINE_MS = 5_000;

/** How long an answer with speech may take: longer than the service itself waits for its provider. */
export class SpeechTimeout {
  readonly #api: Api;
  #serviceMs: number | undefined;

  constructor(api: Api) {
    this.#api = api;
  }

  /** In milliseconds. Where the service does not tell its own timeout now, it is asked again for the next purchase. */
  async read(signal: AbortSignal | undefined): Promise<number> {
    this.#serviceMs ??= await this.#ask(signal).catch(() => undefined);
    return Math.max(LEAST_MS, (this.#serviceMs ?? 0) + MARGIN_MS);
  }

  async #ask(signal: AbortSignal | undefined): Promise<number | undefined> {
    const { data } = await withDeadline(DEADLINE_MS, signal, (signal) => this.#api.GET('/docs', { signal }));
    const { limits } = (data ?? {}) as { limits?: { speechTimeoutSeconds?: unknown } };
    const seconds = limits?.speechTimeoutSeconds;
    return typeof seconds === 'number' && seconds > 0 && seconds <= MOST_SECONDS ? seconds * 1000 : undefined;
  }
}

/** What claims more is not believed. */
const MOST_SECONDS = 3600;
