import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { MeasuredCalls, type OutsideCalls, type OutsideOutcome, type OutsideService } from './outside.ts';

export type Flow = string;
/** `lost`: the hold had ended before its delivered response was captured. */
export type HoldEvent = 'placed' | 'captured' | 'voided' | 'lost';
/** A refused or unknown payment may still be settled. */
export type PaymentEvent = 'settled' | 'refused' | 'unknown' | 'failed';
interface MovedPayment {
  readonly purpose: 'speech' | 'deposit';
  readonly claim: { readonly amount: bigint };
}

/** The response was sent, the caller disconnected first, or this service aborted the response. */
export type RequestEnd = 'answered' | 'caller_left' | 'broken_off';
/** `nameless`: trusted, and what it wrote of the client is no address. */
export type ForwardingProxy = 'trusted' | 'untrusted' | 'nameless';

export type ShedReason = 'event_loop' | 'memory' | 'work';
/** ok, error, the code of a SpeechError, or abandoned if the reader stopped before the end. */
export type SynthesisOutcome = string;

/** The values of several processes are summed, are all the same, or the lowest counts. */
type GaugeScope = 'process' | 'shared' | 'worst';
const AGGREGATORS = { process: 'sum', shared: 'max', worst: 'min' } as const;
/** How long a scrape waits for values that must be read; then it answers without them. */
const READ_TIMEOUT_MS = 1_000;

/** Up to the wait for a deposit's confirmations, the longest of all. */
const DURATION_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 180];

/** The metrics at `/metrics`. Labels come from closed sets, never from texts, ids, addresses or tokens (R40). */
export class Metrics {
  readonly #registry = new Registry();
  readonly contentType = this.#registry.contentType;

  readonly #requests = this.#histogram(
    'speechgate_http_request_duration_seconds',
    'Seconds from the request headers to the end of the response, by operation, status and end (answered, caller_left or broken_off).',
    ['operation', 'status', 'end'],
  );
  readonly #holds = this.#counter(
    'speechgate_holds_total',
    'Holds of credit that this process placed, captured (charged), voided (not charged) or lost (delivered, and ended before the charge), by flow and event.',
    ['flow', 'event'],
  );
  readonly #payments = this.#counter(
    'speechgate_payments_total',
    'USDC payments that became settled, refused, failed or unknown in this process, by flow and event.',
    ['flow', 'event'],
  );
  readonly #revenueMicroUsd = this.#counter(
    'speechgate_revenue_micro_usd_total',
    'Micro-USD that this process charged for speech, by flow. Later refunds are not subtracted.',
    ['flow'],
  );
  readonly #costMicroUsd = this.#counter(
    'speechgate_upstream_cost_micro_usd_total',
    'Upstream cost of syntheses at catalog rates, in micro-USD, by upstream, whether or not callers were charged.',
    ['upstream'],
  );
  readonly #repairs = this.#counter(
    'speechgate_reconciler_repairs_total',
    'Items that this process completed, released or deleted, by reconciler: payments, holds, purchases, refunds, disputes, debts, jobs, mail, old audio and rows.',
    ['reconciler'],
  );
  readonly #firstByte = this.#histogram(
    'speechgate_upstream_first_byte_seconds',
    'Seconds until the speech server sent the first audio of a synthesis.',
    [],
  );
  readonly #syntheses = this.#histogram(
    'speechgate_upstream_duration_seconds',
    'Seconds until the end of a synthesis, by outcome.',
    ['outcome'],
  );
  readonly #upstreamRequests = this.#counter(
    'speechgate_upstream_requests_total',
    'Synthesis requests to speech servers, by upstream and outcome.',
    ['upstream', 'outcome'],
  );
  readonly upstreamFailed = this.#count<[upstream: string, reason: string]>(
    'speechgate_upstream_failures_total',
    'Failed syntheses, by upstream and reason: the HTTP status or its class, unreachable (or no answer), not_http, late_start (no audio in time), timeout, broken_off, other, or the fault of its audio.',
    ['upstream', 'reason'],
  );
  readonly #upstreamAvailable = new Gauge({
    name: 'speechgate_upstream_available',
    help: '1 if the upstream is available, 0 if it failed recently and is tried last.',
    labelNames: ['upstream'],
    aggregator: 'min',
    registers: [this.#registry],
  });
  readonly #refusedCredentials = this.#counter(
    'speechgate_refused_credentials_total',
    'Responses 401 and 403 from other services, by the setting whose credential was refused.',
    ['setting'],
  );
  readonly #outside = this.#counter(
    'speechgate_outside_requests_total',
    'Requests to other services (facilitator, node, processor, upstream, store, mail), by service, call and outcome.',
    ['service', 'call', 'outcome'],
  );
  readonly #outsideSeconds = this.#histogram(
    'speechgate_outside_request_seconds',
    'Seconds until another service answered, by service and call.',
    ['service', 'call'],
  );
  readonly facilitatorLackedGas = this.#count<[]>(
    'speechgate_facilitator_lacked_gas_total',
    'Payments that the facilitator refused for too little balance although the payer has enough: the wallet of the facilitator probably lacks gas (chain fees).',
    [],
  );
  readonly rateLimitRefused = this.#count<[scope: string]>(
    'speechgate_rate_limit_refusals_total',
    'Requests refused with 429 by a rate limit, by scope of the limit.',
    ['scope'],
  );
  readonly requestForwarded = this.#count<[proxy: ForwardingProxy]>(
    'speechgate_forwarded_requests_total',
    'Requests with X-Forwarded-For, by their sender: trusted or untrusted by TRUST_PROXY, or nameless if a trusted proxy wrote no client address.',
    ['proxy'],
  );
  readonly shed = this.#count<[reason: ShedReason]>(
    'speechgate_shed_requests_total',
    'Requests refused because of overload, before any charge, by reason.',
    ['reason'],
  );

  constructor() {
    collectDefaultMetrics({ register: this.#registry });
    // Gauges named like counters, which promtool refuses. nodejs_active_handles and its siblings have the same by type.
    for (const of of ['handles', 'requests', 'resources'])
      this.#registry.removeSingleMetric(`nodejs_active_${of}_total`);
  }

  /** @param status null if the caller disconnected before there was one */
  requestEnded(operation: string | undefined, status: number | null, end: RequestEnd, seconds: number): void {
    this.#requests(operation ?? 'none', String(status ?? 'none'), end).observe(seconds);
  }

  holdMoved(flow: Flow, event: HoldEvent, amountMicroUsd: bigint): void {
    this.#holds(flow, event).inc();
    if (event === 'captured') this.#revenueMicroUsd(flow).inc(Number(amountMicroUsd));
  }

  paymentMoved({ purpose, claim }: MovedPayment, event: PaymentEvent): void {
    const flow: Flow = purpose === 'speech' ? 'direct' : 'deposit';
    this.#payments(flow, event).inc();
    if (purpose === 'speech' && event === 'settled') this.#revenueMicroUsd(flow).inc(Number(claim.amount));
  }

  repaired(reconciler: string, count: number): void {
    this.#repairs(reconciler).inc(count);
  }

  upstreamAnswered(seconds: number): void {
    this.#firstByte().observe(seconds);
  }

  upstreamSpent(upstream: string, costMicroUsd: number): void {
    this.#costMicroUsd(upstream).inc(costMicroUsd);
  }

  upstreamEnded(upstream: string, outcome: SynthesisOutcome, seconds: number): void {
    this.#syntheses(outcome).observe(seconds);
    this.#upstreamRequests(upstream, outcome).inc();
  }

  upstreamAvailable(upstream: string, isAvailable: boolean): void {
    this.#upstreamAvailable.set({ upstream }, isAvailable ? 1 : 0);
  }

  /** Starts the series at 0, so that the first refusal is an increase. */
  credentialUsed(setting: string): void {
    this.#refusedCredentials(setting).inc(0);
  }

  credentialRefused(setting: string): void {
    this.#refusedCredentials(setting).inc();
  }

  outside(service: OutsideService): OutsideCalls {
    return new MeasuredCalls(service, (call) => {
      const duration = this.#outsideSeconds(service, call);
      const counts: Partial<Record<OutsideOutcome, Counter.Internal>> = {};
      return (outcome, seconds) => {
        counts[outcome] ??= this.#outside(service, call, outcome);
        counts[outcome].inc();
        duration.observe(seconds);
      };
    });
  }

  /** Adds gauges that share a read per scrape, in the order of these calls. They have no value while the read fails. */
  addGauges<Values extends object>(
    scope: GaugeScope,
    read: () => Promise<Values>,
    gauges: Readonly<Record<string, readonly [help: string, member: keyof Values]>>,
    label?: string,
  ): void {
    let reading: Promise<Values> | undefined;
    const readOnce = () => {
      reading ??= read().finally(() => {
        reading = undefined;
      });
      return withinTime(reading);
    };
    for (const [name, [help, member]] of Object.entries(gauges)) {
      new Gauge({
        name,
        help,
        aggregator: AGGREGATORS[scope],
        labelNames: label === undefined ? [] : [label],
        registers: [this.#registry],
        async collect() {
          const value: unknown = (await readOnce())?.[member];
          if (label !== undefined) {
            this.reset();
            for (const [labelled, number] of Object.entries(value ?? {})) this.set({ [label]: labelled }, number);
          } else if (typeof value === 'number') this.set(value);
          else this.remove();
        },
      });
    }
  }

  scrape(): Promise<string> {
    return this.#registry.metrics();
  }

  /** For the primary, which adds up those of its processes. */
  read() {
    return this.#registry.getMetricsAsJSON();
  }

  /** Returns a function that counts one. */
  #count<Labels extends string[]>(name: string, help: string, labelNames: string[]): (...labels: Labels) => void {
    const seriesOf = this.#counter(name, help, labelNames);
    return (...labels) => seriesOf(...labels).inc();
  }

  #counter(name: string, help: string, labelNames: string[]) {
    const counter = new Counter({ name, help, labelNames, registers: [this.#registry] });
    return byLabels((...labels) => counter.labels(...labels));
  }

  #histogram(name: string, help: string, labelNames: string[]) {
    const histogram = new Histogram({ name, help, labelNames, buckets: DURATION_BUCKETS, registers: [this.#registry] });
    return byLabels((...labels) => histogram.labels(...labels));
  }
}

/** Caches the series of labels, because finding them per request costs more than counting. */
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

async function withinTime<T>(value: Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, READ_TIMEOUT_MS, undefined);
  });
  return Promise.race([value.catch(() => undefined), timeout]).finally(() => clearTimeout(timer));
}
