/** Failures in a row, of syntheses, after which an upstream is left alone. */
const MAX_FAILURES = 3;
const FIRST_DELAY_MS = 1_000;
const MAX_DELAY_MS = 30_000;
const GROWTH = 2;
/** A probe waits by up to this part less at random, so that processes don't ask together. */
const JITTER = 0.25;
const PROBE_TIMEOUT_MS = 5_000;

export interface CircuitBreakerOptions {
  /** Asks the upstream, at no cost, whether it answers. */
  readonly probe: (signal: AbortSignal) => Promise<boolean>;
  /** Told when the upstream is left alone, and when it is asked again. */
  readonly onChange: (isAvailable: boolean) => void;
}

/**
 * Whether an upstream is asked, or left alone as it is broken:
 *
 *     closed    -- failures in a row, or nobody is there --> open
 *     open      -- it answers a probe, later and later  ---> half-open
 *     half-open -- one synthesis has audio ----------------> closed, and open again with the next failure
 *     half-open -- it fails -------------------------------> open, for longer
 *     any       -- a synthesis is heard to its end --------> closed
 *
 * It only advises: who has no other upstream asks one that is open all the same.
 */
export class CircuitBreaker {
  readonly #options: CircuitBreakerOptions;
  #state: 'closed' | 'open' | 'half-open' = 'closed';
  #failures = 0;
  /** Of the half-open state: the one synthesis that finds out is under way. */
  #isTried = false;
  #delayMs = FIRST_DELAY_MS;
  #timer: NodeJS.Timeout | undefined;
  readonly #closing = new AbortController();

  constructor(options: CircuitBreakerOptions) {
    this.#options = options;
  }

  /** Whether the next synthesis should be asked of the upstream. */
  get isAvailable(): boolean {
    return this.#state === 'closed' || (this.#state === 'half-open' && !this.#isTried);
  }

  begun(): void {
    this.#isTried = this.#state === 'half-open';
  }

  /** A synthesis has audio. */
  answered(): void {
    if (this.#state !== 'closed') this.#close(MAX_FAILURES - 1);
  }

  /** A synthesis was heard to its end. */
  succeeded(): void {
    this.#delayMs = FIRST_DELAY_MS;
    if (this.#state === 'closed') this.#failures = 0;
    else this.#close(0);
  }

  /** A synthesis ended in a way that tells nothing of the upstream. */
  toldNothing(): void {
    this.#isTried = false;
  }

  /** @param isAway nobody is there @param waitMs how long the upstream has asked to be left alone */
  failed(isAway: boolean, waitMs = 0): void {
    this.#isTried = false;
    this.#failures++;
    if (this.#state === 'open') return;
    if (this.#state === 'closed' && this.#failures < MAX_FAILURES && !isAway) return;
    this.#enter('open');
    this.#probeLater(Math.min(waitMs, MAX_DELAY_MS));
  }

  /** Probes no more. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#closing.abort();
  }

  #close(failures: number): void {
    clearTimeout(this.#timer);
    this.#enter('closed');
    this.#failures = failures;
    this.#isTried = false;
  }

  #enter(state: 'closed' | 'open' | 'half-open'): void {
    const isChange = (state === 'open') !== (this.#state === 'open');
    this.#state = state;
    if (isChange) this.#options.onChange(state !== 'open');
  }

  #probeLater(atLeastMs: number): void {
    if (this.#closing.signal.aborted) return;
    const delayMs = Math.max(this.#delayMs * (1 - JITTER * Math.random()), atLeastMs);
    this.#delayMs = Math.min(this.#delayMs * GROWTH, MAX_DELAY_MS);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#probe(), delayMs).unref();
  }

  async #probe(): Promise<void> {
    const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(PROBE_TIMEOUT_MS)]);
    const isThere = await this.#options.probe(signal).catch(() => false);
    if (this.#state !== 'open') return;
    if (isThere) this.#enter('half-open');
    else this.#probeLater(0);
  }
}
