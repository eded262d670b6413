import type { Logger } from 'pino';
import type { CharactersPerSecond } from '../config/catalog-upstreams.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { CredentialAlarm, OutsideCalls } from '../observability/outside.ts';
import type { SpeechServer } from './openai-compatible.ts';
import { type Speech, SpeechError, silence, type Utterance, wrongLength } from './provider.ts';
import { hasWord } from './split-text.ts';

const MAX_FAILURES = 3;
const FIRST_DELAY_MS = 1_000;
const MAX_DELAY_MS = 30_000;
const GROWTH = 2;
/** A probe's delay is shortened at random by up to this part, so that processes don't probe together. */
const JITTER = 0.25;
const PROBE_TIMEOUT_MS = 5_000;

export interface UpstreamOptions {
  readonly name: string;
  readonly server: SpeechServer;
  /** After this long, a synthesis ended by its deadline counts as a failure of the upstream. */
  readonly silenceMs: number;
  readonly onRefused: CredentialAlarm;
  readonly metrics: Metrics;
  readonly calls: OutsideCalls;
  readonly log: Logger;
}

export class Upstream {
  readonly name: string;
  readonly #options: UpstreamOptions;
  readonly #breaker: CircuitBreaker;

  constructor(options: UpstreamOptions) {
    const { name, server, metrics, log } = options;
    this.name = name;
    this.#options = options;
    metrics.upstreamAvailable(name, true);
    this.#breaker = new CircuitBreaker(
      (signal) => server.probe(signal),
      (isAvailable) => {
        metrics.upstreamAvailable(name, isAvailable);
        if (isAvailable)
          log.info({ upstream: name }, 'a speech server (upstream) is available again. No action is needed');
        else
          log.warn(
            { upstream: name },
            'a speech server (upstream) failed repeatedly or is unreachable, so other servers of a model, if any, are tried first until it recovers. Check this server',
          );
      },
    );
  }

  get isAvailable(): boolean {
    return this.#breaker.isAvailable;
  }

  /** @param pace of a model whose audio is checked at its end */
  async synthesize(
    utterance: Utterance,
    signal: AbortSignal,
    firstByteMs?: number,
    pace?: CharactersPerSecond,
  ): Promise<Speech> {
    const { server, metrics, calls } = this.#options;
    const startedAt = performance.now();
    this.#breaker.start();
    try {
      const served = await calls.measure('synthesize', () => server.synthesize(utterance, signal, firstByteMs));
      const { measure, ...speech } = served;
      const check = () => pace && checkAudio(utterance, measure(), pace);
      metrics.upstreamAnswered(secondsSince(startedAt));
      this.#breaker.answered();
      return { ...speech, audio: this.#measured(speech.audio, check, utterance, signal, startedAt) };
    } catch (error) {
      this.#failed(error, utterance, signal, startedAt);
      throw error;
    }
  }

  async close(): Promise<void> {
    this.#breaker.stop();
    await this.#options.server.close();
  }

  async *#measured(
    audio: AsyncIterable<Uint8Array>,
    check: () => void,
    utterance: Utterance,
    signal: AbortSignal,
    startedAt: number,
  ) {
    const { name, metrics } = this.#options;
    let isOver = false;
    try {
      yield* audio;
      check();
      isOver = true;
      metrics.upstreamEnded(name, 'ok', secondsSince(startedAt));
      this.#breaker.succeeded();
    } catch (error) {
      isOver = true;
      this.#failed(error, utterance, signal, startedAt);
      throw error;
    } finally {
      if (!isOver) {
        metrics.upstreamEnded(name, 'abandoned', secondsSince(startedAt));
        this.#breaker.ignore();
      }
    }
  }

  #failed(error: unknown, { text }: Utterance, signal: AbortSignal, startedAt: number): void {
    const { name, metrics, onRefused, silenceMs } = this.#options;
    const seconds = secondsSince(startedAt);
    const known = error instanceof SpeechError ? error : undefined;
    metrics.upstreamEnded(name, known?.code ?? 'error', seconds);
    metrics.upstreamFailed(name, known?.failure ?? 'other');
    if (known) known.upstream = name;
    if (known?.fault === 'credential') onRefused();
    // Deadlines also abort early, for example when this process stops.
    const isOurs = signal.aborted && seconds * 1000 < silenceMs;
    const isWordless = known?.code === 'TTS_UPSTREAM_ERROR' && !hasWord(text);
    if (isOurs || isWordless || known?.fault === 'utterance') this.#breaker.ignore();
    else this.#breaker.failed(known?.fault === 'unreachable', (known?.retryAfterSeconds ?? 0) * 1000);
  }
}

const SPOKEN = /[\p{L}\p{N}]/gu;
/** In less text, pauses and the length of single words decide. */
const MIN_SPOKEN_CHARACTERS = 50;

/** Only letters and digits count: rows of dashes take no time. @throws SpeechError */
function checkAudio(
  { text, speed }: Utterance,
  { seconds, isSilent }: { readonly seconds: number; readonly isSilent: boolean },
  { min, max }: CharactersPerSecond,
): void {
  const characters = text.match(SPOKEN)?.length ?? 0;
  if (characters > 0 && isSilent) throw silence();
  const pace = characters / (seconds * speed);
  if (characters >= MIN_SPOKEN_CHARACTERS && (pace < min || pace > max)) throw wrongLength();
}

const secondsSince = (startedAt: number): number => (performance.now() - startedAt) / 1000;

/**
 * Whether an upstream should be asked:
 *
 *     closed    -- failures in a row, or nothing listens --> open
 *     open      -- it answers a probe; intervals grow -----> half-open
 *     half-open -- one synthesis has audio ----------------> closed, and open again with the next failure
 *     half-open -- it fails -------------------------------> open, for longer
 *     any       -- a synthesis is read to its end ---------> closed
 *
 * It only advises: without an alternative, an open upstream is asked anyway.
 */
class CircuitBreaker {
  readonly #probeServer: (signal: AbortSignal) => Promise<boolean>;
  readonly #onChange: (isAvailable: boolean) => void;
  #state: 'closed' | 'open' | 'half-open' = 'closed';
  #failures = 0;
  #isTrialRunning = false;
  #delayMs = FIRST_DELAY_MS;
  #timer: NodeJS.Timeout | undefined;
  readonly #closing = new AbortController();

  constructor(probe: (signal: AbortSignal) => Promise<boolean>, onChange: (isAvailable: boolean) => void) {
    this.#probeServer = probe;
    this.#onChange = onChange;
  }

  get isAvailable(): boolean {
    return this.#state === 'closed' || (this.#state === 'half-open' && !this.#isTrialRunning);
  }

  start(): void {
    this.#isTrialRunning = this.#state === 'half-open';
  }

  answered(): void {
    if (this.#state !== 'closed') this.#close(MAX_FAILURES - 1);
  }

  succeeded(): void {
    this.#delayMs = FIRST_DELAY_MS;
    if (this.#state === 'closed') this.#failures = 0;
    else this.#close(0);
  }

  ignore(): void {
    this.#isTrialRunning = false;
  }

  /** @param isConnectionError nothing listens there @param waitMs the upstream's Retry-After */
  failed(isConnectionError: boolean, waitMs = 0): void {
    this.#isTrialRunning = false;
    this.#failures++;
    if (this.#state === 'open') return;
    if (this.#state === 'closed' && this.#failures < MAX_FAILURES && !isConnectionError) return;
    this.#enter('open');
    this.#probeLater(Math.min(waitMs, MAX_DELAY_MS));
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#closing.abort();
  }

  #close(failures: number): void {
    clearTimeout(this.#timer);
    this.#enter('closed');
    this.#failures = failures;
    this.#isTrialRunning = false;
  }

  #enter(state: 'closed' | 'open' | 'half-open'): void {
    const isChange = (state === 'open') !== (this.#state === 'open');
    this.#state = state;
    if (isChange) this.#onChange(state !== 'open');
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
    const isThere = await this.#probeServer(signal).catch(() => false);
    if (this.#state !== 'open') return;
    if (isThere) this.#enter('half-open');
    else this.#probeLater(0);
  }
}
