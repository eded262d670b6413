import type { Logger } from 'pino';
import type { CredentialAlarm } from '../observability/credential-alarm.ts';
import type { Metrics, SynthesisOutcome } from '../observability/metrics.ts';
import { CircuitBreaker } from './circuit-breaker.ts';
import { type FailedSynthesis, measuredProvider, type SynthesisEnd } from './measured-provider.ts';
import { SpeechError, type SpeechProvider } from './provider.ts';

export interface UpstreamOptions {
  /** As the catalog, the metrics and the books name it. */
  readonly name: string;
  readonly provider: SpeechProvider;
  /** A synthesis that its deadline has ended after so long was the upstream's to end. */
  readonly silenceMs: number;
  readonly onRefused: CredentialAlarm;
  readonly metrics: Metrics;
  readonly log: Logger;
}

/** One server that speaks: measured, and known to be broken while it is. */
export class Upstream {
  readonly name: string;
  /** Measured. */
  readonly provider: SpeechProvider;
  readonly #breaker: CircuitBreaker;
  readonly #silenceMs: number;

  constructor({ name, provider, silenceMs, onRefused, metrics, log }: UpstreamOptions) {
    this.name = name;
    this.#silenceMs = silenceMs;
    metrics.upstreamAvailable(name, true);
    this.#breaker = new CircuitBreaker({
      probe: async (signal) => (await provider.probe?.(signal)) ?? true,
      onChange: (isAvailable) => {
        metrics.upstreamAvailable(name, isAvailable);
        if (isAvailable) log.info({ upstream: name }, 'an upstream of speech is asked again');
        else log.warn({ upstream: name }, 'an upstream of speech is broken and left alone for a while');
      },
    });
    this.provider = measuredProvider(provider, {
      begun: () => this.#breaker.begun(),
      answered: (seconds) => {
        metrics.upstreamAnswered(seconds);
        this.#breaker.answered();
      },
      ended: (end, seconds) => {
        metrics.upstreamEnded(name, outcomeOf(end), seconds);
        if (end.outcome === 'failed' && faultOf(end.error) === 'credential') onRefused();
        this.#learn(end, seconds);
      },
    });
  }

  /** Whether it should be asked before those that are not. */
  get isAvailable(): boolean {
    return this.#breaker.isAvailable;
  }

  async close(): Promise<void> {
    this.#breaker.stop();
    await this.provider.close();
  }

  #learn(end: SynthesisEnd, seconds: number): void {
    if (end.outcome === 'ok') this.#breaker.succeeded();
    else if (end.outcome === 'abandoned') this.#breaker.toldNothing();
    else this.#learnFailure(end, seconds);
  }

  #learnFailure({ error, isLate }: FailedSynthesis, seconds: number): void {
    const { fault, retryAfterSeconds } = error instanceof SpeechError ? error : UNEXPECTED;
    // Deadlines also fire early, as when this process stops.
    if (fault === 'utterance' || (isLate && seconds * 1000 < this.#silenceMs)) this.#breaker.toldNothing();
    else this.#breaker.failed(fault === 'away', (retryAfterSeconds ?? 0) * 1000);
  }
}

const UNEXPECTED = { fault: 'upstream', retryAfterSeconds: undefined } as const;

const faultOf = (error: unknown) => (error instanceof SpeechError ? error.fault : undefined);

function outcomeOf(end: SynthesisEnd): SynthesisOutcome {
  if (end.outcome !== 'failed') return end.outcome;
  return end.error instanceof SpeechError ? end.error.code : 'error';
}
