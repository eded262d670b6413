import type { Api } from './api.ts';
import { withDeadline } from './waiting.ts';

const MIN_MS = 120_000;
const MARGIN_MS = 30_000;
const DEADLINE_MS = 5_000;
const MAX_SECONDS = 3600;

/** Timeout for a response with audio: longer than the service's own timeout for its provider. */
export class SpeechTimeout {
  readonly #api: Api;
  #serviceMs: number | undefined;

  constructor(api: Api) {
    this.#api = api;
  }

  async read(signal: AbortSignal | undefined): Promise<number> {
    this.#serviceMs ??= await this.#readServiceMs(signal).catch(() => undefined);
    return Math.max(MIN_MS, (this.#serviceMs ?? 0) + MARGIN_MS);
  }

  async #readServiceMs(signal: AbortSignal | undefined): Promise<number | undefined> {
    const { data } = await withDeadline(DEADLINE_MS, signal, (signal) => this.#api.GET('/docs', { signal }));
    const { limits } = (data ?? {}) as { limits?: { speechTimeoutSeconds?: unknown } };
    const seconds = limits?.speechTimeoutSeconds;
    return typeof seconds === 'number' && seconds > 0 && seconds <= MAX_SECONDS ? seconds * 1000 : undefined;
  }
}
