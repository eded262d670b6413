import { channel } from 'node:diagnostics_channel';
import type { Logger } from 'pino';
import type { Metrics } from './metrics.ts';

/** `refused`: our credential (401, 403). `rejected`: another 4xx. `invalid`: an answer that makes no sense. */
export type OutsideOutcome = 'ok' | 'refused' | 'rejected' | 'failed' | 'invalid' | 'timeout' | 'unreachable';

export type OutsideService = 'facilitator' | 'node' | 'processor' | 'upstream' | 'store' | 'mail';

/** Counts and times the calls to a service, which a trace shows by their names. */
export interface OutsideCalls {
  /** @param outcomeOf of a result; without it, every result is `ok` */
  measure<T>(call: string, run: () => Promise<T>, outcomeOf?: (result: T) => OutsideOutcome): Promise<T>;
}

/** For commands, which have no metrics. */
export const UNMEASURED: OutsideCalls = { measure: (_call, run) => run() };

type CallEnded = (outcome: OutsideOutcome, seconds: number) => void;

/** ops/otel.mjs subscribes to it and gives each call a span. */
const callChannel = channel('speechgate.outside.call');

export class MeasuredCalls implements OutsideCalls {
  readonly #service: OutsideService;
  readonly #seriesOf: (call: string) => CallEnded;
  readonly #calls = new Map<string, CallEnded>();

  constructor(service: OutsideService, seriesOf: (call: string) => CallEnded) {
    this.#service = service;
    this.#seriesOf = seriesOf;
  }

  async measure<T>(call: string, run: () => Promise<T>, outcomeOf?: (result: T) => OutsideOutcome): Promise<T> {
    const startedAt = performance.now();
    let outcome: OutsideOutcome = 'ok';
    try {
      const result = await (callChannel.hasSubscribers ? traced(`${this.#service} ${call}`, run) : run());
      if (outcomeOf) outcome = outcomeOf(result);
      return result;
    } catch (error) {
      outcome = outcomeOfError(error);
      throw error;
    } finally {
      this.#endOf(call)(outcome, (performance.now() - startedAt) / 1000);
    }
  }

  #endOf(call: string): CallEnded {
    const known = this.#calls.get(call);
    if (known) return known;
    const ended = this.#seriesOf(call);
    this.#calls.set(call, ended);
    return ended;
  }
}

function traced<T>(name: string, run: () => Promise<T>): Promise<T> {
  const message = { name, run };
  callChannel.publish(message);
  return message.run();
}

export function outcomeOfStatus(status: number): OutsideOutcome {
  if (status === 401 || status === 403) return 'refused';
  if (status >= 500) return 'failed';
  return status >= 400 ? 'rejected' : 'ok';
}

const UNREACHABLE = /^(ECONN|ENOTFOUND|EAI_|EHOST|ENET|EPIPE|UND_ERR_)/;
const BY_FAULT: Readonly<Record<string, OutsideOutcome>> = {
  credential: 'refused',
  utterance: 'rejected',
  unreachable: 'unreachable',
};

/** By what our errors and those of HTTP and SMTP clients have: a fault, a status, or the code of the network. */
function outcomeOfError(error: unknown): OutsideOutcome {
  const { name, code, status, statusCode, fault, failure, cause, $metadata } = error as Readonly<
    Record<string, unknown>
  >;
  const answered = status ?? statusCode ?? ($metadata as { httpStatusCode?: number } | undefined)?.httpStatusCode;
  if (typeof answered === 'number') return outcomeOfStatus(answered);
  if (/timeout|ETIMEDOUT|late_start/i.test(`${name} ${code} ${failure}`)) return 'timeout';
  const byFault = BY_FAULT[String(fault)];
  if (byFault) return byFault;
  if (UNREACHABLE.test(String(code))) return 'unreachable';
  if (code === 'EAUTH') return 'refused';
  if (error instanceof RangeError) return 'rejected';
  if (error instanceof SyntaxError) return 'invalid';
  return cause instanceof Error ? outcomeOfError(cause) : 'failed';
}

/** Called when another service answers 401 or 403 to our credential. */
export type CredentialAlarm = () => void;

export function credentialAlarm(
  { metrics, log }: { readonly metrics: Metrics; readonly log: Pick<Logger, 'error'> },
  setting: string,
): CredentialAlarm {
  metrics.credentialUsed(setting);
  return () => {
    metrics.credentialRefused(setting);
    log.error(
      { setting },
      'another service answered 401 or 403, so our requests to it may fail. Correct the credential in the setting that this line names, or its rights at that service, then restart speechgate',
    );
  };
}
