import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { type GaugeScope, type GaugeValue, ReadGauges } from './read-gauges.ts';

/** The metrics of one process with their values, to be added up with those of others. */
export type MetricValues = Awaited<ReturnType<Registry['getMetricsAsJSON']>>;

/** A payment flow, as a label: its name in the parts list, or deposit. */
export type Flow = string;
/** What becomes of a hold; a captured one is reversed when nothing could be delivered. */
export type HoldEvent = 'placed' | 'captured' | 'voided' | 'reversed';
/** What becomes of a payment by an on-chain authorization; one that was refused or unknown may still be settled. */
export type PaymentEvent = 'settled' | 'refused' | 'unknown' | 'failed';
/** A payment on the chain, as far as it is counted. */
interface MovedPayment {
  readonly purpose: 'speech' | 'deposit';
  /** In micro-USD. */
  readonly claim: { readonly amount: bigint };
}

/** How a request ended: its answer was sent, or its caller left before, or this side broke the answer off. */
export type RequestEnd = 'answered' | 'caller_left' | 'broken_off';
/** Who was refused because of overload: nobody's, a payer's, or that of an address whose last credential failed. */
export type ShedClass = 'unpaid' | 'paid' | 'guess';
/** Which bound was met. */
export type ShedReason = 'work' | 'event_loop';
/** How a synthesis ended: ok, error, the code of a SpeechError, or abandoned when its reader stopped before the end. */
export type SynthesisOutcome = string;

const DURATION_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/**
 * What operators see at `/metrics`. One per app, handed to the parts that measure. A label is always one of a closed
 * set, never a text, an id, an address or a token (R40).
 */
export class Metrics {
  readonly #registry = new Registry();
  readonly #gauges = new ReadGauges(this.#registry);
  readonly contentType = this.#registry.contentType;

  readonly #requests = new Histogram({
    name: 'speechgate_http_request_duration_seconds',
    help: "Requests from their headers' arrival to the end of the answer, by operation of the contract, status and end.",
    labelNames: ['operation', 'status', 'end'],
    buckets: DURATION_BUCKETS,
    registers: [this.#registry],
  });
  readonly #holds = new Counter({
    name: 'speechgate_holds_total',
    help: 'Holds that this process placed, captured, voided and reversed, by flow.',
    labelNames: ['flow', 'event'],
    registers: [this.#registry],
  });
  readonly #heldMicroUsd = new Counter({
    name: 'speechgate_held_micro_usd_total',
    help: 'Micro-USD of the holds that this process placed, captured, voided and reversed, by flow.',
    labelNames: ['flow', 'event'],
    registers: [this.#registry],
  });
  readonly #payments = new Counter({
    name: 'speechgate_payments_total',
    help: 'Payments in USDC that this process saw settled, refused, failed and of unknown end, by flow.',
    labelNames: ['flow', 'event'],
    registers: [this.#registry],
  });
  readonly #paymentsMicroUsd = new Counter({
    name: 'speechgate_payments_micro_usd_total',
    help: 'Micro-USD of the payments that this process saw settled, refused, failed and of unknown end, by flow.',
    labelNames: ['flow', 'event'],
    registers: [this.#registry],
  });
  readonly #revenueMicroUsd = new Counter({
    name: 'speechgate_revenue_micro_usd_total',
    help: 'Micro-USD that this process charged for speech, by flow; what it gave back later is not taken off.',
    labelNames: ['flow'],
    registers: [this.#registry],
  });
  readonly #costMicroUsd = new Counter({
    name: 'speechgate_upstream_cost_micro_usd_total',
    help: 'Micro-USD that each upstream takes for what it began to speak, by its rate of the catalog, charged or not.',
    labelNames: ['upstream'],
    registers: [this.#registry],
  });
  readonly #repairs = new Counter({
    name: 'speechgate_reconciler_repairs_total',
    help: 'What the reconcilers of this process repaired, by reconciler.',
    labelNames: ['reconciler'],
    registers: [this.#registry],
  });
  readonly #firstByte = new Histogram({
    name: 'speechgate_upstream_first_byte_seconds',
    help: "The speech provider's time to its first audio.",
    buckets: DURATION_BUCKETS,
    registers: [this.#registry],
  });
  readonly #syntheses = new Histogram({
    name: 'speechgate_upstream_duration_seconds',
    help: "The speech provider's time to the end of its answer, by outcome.",
    labelNames: ['outcome'],
    buckets: DURATION_BUCKETS,
    registers: [this.#registry],
  });
  readonly #upstreamRequests = new Counter({
    name: 'speechgate_upstream_requests_total',
    help: 'Syntheses that were asked of each upstream of speech, by how they ended.',
    labelNames: ['upstream', 'outcome'],
    registers: [this.#registry],
  });
  readonly #upstreamSeconds = new Histogram({
    name: 'speechgate_upstream_seconds',
    help: "Each upstream's time to the end of its answer.",
    labelNames: ['upstream'],
    buckets: DURATION_BUCKETS,
    registers: [this.#registry],
  });
  readonly #upstreamAvailable = new Gauge({
    name: 'speechgate_upstream_available',
    help: 'Whether an upstream of speech is asked: 0 while it is broken and left alone, in any process.',
    labelNames: ['upstream'],
    aggregator: 'min',
    registers: [this.#registry],
  });
  readonly #refusedCredentials = new Counter({
    name: 'speechgate_refused_credentials_total',
    help: 'Answers 401 and 403 of other services, by the setting that holds the credential.',
    labelNames: ['setting'],
    registers: [this.#registry],
  });
  readonly #lostAnswers = new Counter({
    name: 'speechgate_lost_answers_total',
    help: 'Answers to prepaid requests that were charged and did not arrive, by whether their audio is kept.',
    labelNames: ['outcome'],
    registers: [this.#registry],
  });
  readonly #refusals = new Counter({
    name: 'speechgate_rate_limit_refusals_total',
    help: 'Requests that a rate limit refused, by the kind of its bucket.',
    labelNames: ['scope'],
    registers: [this.#registry],
  });
  readonly #forwarded = new Counter({
    name: 'speechgate_forwarded_requests_total',
    help: 'Requests with X-Forwarded-For, by whether TRUST_PROXY believes the connection that they came by.',
    labelNames: ['proxy'],
    registers: [this.#registry],
  });

  readonly #shed = new Counter({
    name: 'speechgate_shed_requests_total',
    help: 'Requests that were refused because of overload before anything was held, by who asked and which bound was met.',
    labelNames: ['class', 'reason'],
    registers: [this.#registry],
  });

  readonly #request = byLabels((...labels) => this.#requests.labels(...labels));
  readonly #hold = byLabels((...labels) => this.#holds.labels(...labels));
  readonly #held = byLabels((...labels) => this.#heldMicroUsd.labels(...labels));
  readonly #payment = byLabels((...labels) => this.#payments.labels(...labels));
  readonly #paid = byLabels((...labels) => this.#paymentsMicroUsd.labels(...labels));
  readonly #revenue = byLabels((...labels) => this.#revenueMicroUsd.labels(...labels));
  readonly #synthesis = byLabels((...labels) => this.#syntheses.labels(...labels));
  readonly #upstreamRequest = byLabels((...labels) => this.#upstreamRequests.labels(...labels));
  readonly #upstreamTime = byLabels((...labels) => this.#upstreamSeconds.labels(...labels));

  constructor() {
    collectDefaultMetrics({ register: this.#registry });
  }

  /**
   * @param operation the contract's operationId; undefined when no operation serves the request
   * @param status null when the caller left before there was one
   */
  requestEnded(operation: string | undefined, status: number | null, end: RequestEnd, seconds: number): void {
    this.#request(operation ?? 'none', String(status ?? 'none'), end).observe(seconds);
  }

  holdMoved(flow: Flow, event: HoldEvent, amountMicroUsd: bigint): void {
    this.#hold(flow, event).inc();
    this.#held(flow, event).inc(Number(amountMicroUsd));
    if (event === 'captured') this.#revenue(flow).inc(Number(amountMicroUsd));
  }

  answerLost(outcome: 'kept' | 'not_kept'): void {
    this.#lostAnswers.labels(outcome).inc();
  }

  paymentMoved({ purpose, claim }: MovedPayment, event: PaymentEvent): void {
    const flow: Flow = purpose === 'speech' ? 'direct' : 'deposit';
    this.#payment(flow, event).inc();
    this.#paid(flow, event).inc(Number(claim.amount));
    if (purpose === 'speech' && event === 'settled') this.#revenue(flow).inc(Number(claim.amount));
  }

  /** @param reconciler its name in the code */
  repaired(reconciler: string, count: number): void {
    this.#repairs.inc({ reconciler }, count);
  }

  upstreamAnswered(seconds: number): void {
    this.#firstByte.observe(seconds);
  }

  /**
   * @param upstream its name in the catalog
   * @param costMicroUsd what it takes for a whole text that it began to speak
   */
  upstreamSpent(upstream: string, costMicroUsd: number): void {
    this.#costMicroUsd.inc({ upstream }, costMicroUsd);
  }

  /** @param upstream its name in the catalog */
  upstreamEnded(upstream: string, outcome: SynthesisOutcome, seconds: number): void {
    this.#synthesis(outcome).observe(seconds);
    this.#upstreamRequest(upstream, outcome).inc();
    this.#upstreamTime(upstream).observe(seconds);
  }

  /** @param isAvailable it is not broken, as far as this process knows */
  upstreamAvailable(upstream: string, isAvailable: boolean): void {
    this.#upstreamAvailable.set({ upstream }, isAvailable ? 1 : 0);
  }

  /** Begins to count, so that the first refusal is an increase. */
  credentialUsed(setting: string): void {
    this.#refusedCredentials.inc({ setting }, 0);
  }

  credentialRefused(setting: string): void {
    this.#refusedCredentials.inc({ setting });
  }

  /** @param scope the kind of the bucket, as X-RateLimit-Scope names it */
  /** Counts a request with X-Forwarded-For, which is believed if it comes from a trusted proxy. */
  requestForwarded(proxy: 'trusted' | 'untrusted'): void {
    this.#forwarded.inc({ proxy });
  }

  rateLimitRefused(scope: string): void {
    this.#refusals.inc({ scope });
  }

  /** Counts a request that was refused because of overload. */
  shed(shed: ShedClass, reason: ShedReason): void {
    this.#shed.inc({ class: shed, reason });
  }

  /**
   * Adds gauges whose values are read together when they are scraped; reads begin in the order they were added in. While
   * the read fails, or takes longer than a second, they have no value at all.
   * @param help what each gauge tells, by name
   * @param label of gauges that have a value for each of its values
   */
  addGauges<Name extends string>(
    scope: GaugeScope,
    help: Record<Name, string>,
    read: () => Promise<Record<Name, GaugeValue>>,
    label?: string,
  ): void {
    this.#gauges.add(scope, help, read, label);
  }

  /** All metrics in Prometheus' text format. */
  async scrape(): Promise<string> {
    await this.#gauges.read();
    return this.#registry.metrics();
  }

  /** All metrics as values. */
  async values(): Promise<MetricValues> {
    await this.#gauges.read();
    return this.#registry.getMetricsAsJSON();
  }
}

/** Finds the series of some labels once; finding it for each request costs more than counting. */
function byLabels<Series>(find: (...labels: string[]) => Series): (...labels: string[]) => Series {
  const known = new Map<string, Series>();
  return (...labels) => {
    const key = labels.join();
    let series = known.get(key);
    if (!series) {
      series = find(...labels);
      known.set(key, series);
    }
    return series;
  };
}
