import type { Observe } from '../soak/callers/line.ts';
import { errorOf } from '../soak/callers/operation.ts';

/** One request as its caller saw it. */
export interface Attempt {
  readonly path: string;
  /** When it ended, by the monotonic clock. */
  readonly until: number;
  readonly ms: number;
  /** 0 without a complete response. */
  readonly status: number;
  readonly code: string | undefined;
}

/** A fault and its time by the monotonic clock. */
export interface Fault {
  readonly name: string;
  readonly at: number;
  /** When it was resolved: failed over, replaced or restarted. */
  readonly until: number;
}

export interface Figures {
  readonly fault: string;
  readonly seconds: number;
  readonly requests: number;
  readonly errors: number;
  /** From the fault to the last error, in seconds. 0 without errors. */
  readonly errorSeconds: number;
  /** Latency of successful responses in milliseconds. */
  readonly p50: number;
  readonly p99: number;
  readonly slowest: number;
}

/** Excluded from latencies: these wait for blocks by design. */
const WAITING = '/x402/deposit';

const isError = ({ status }: Attempt): boolean => status === 0 || status >= 500;

export const recordIn =
  (attempts: Attempt[]): Observe =>
  (sent, heard, ms) => {
    const path = sent.path.replace(/\?.*/, '').replace(/[0-9a-f-]{36}/, 'ID');
    const status = heard.isWhole ? heard.status : 0;
    attempts.push({ path, until: performance.now(), ms, status, code: errorOf(heard)?.code });
  };

/** Figures before the first fault and after each fault. */
export function figuresOf(attempts: readonly Attempt[], faults: readonly Fault[], end: number): Figures[] {
  const begin = Math.min(...attempts.map(({ until, ms }) => until - ms));
  const all = [{ name: 'none', at: begin, until: begin }, ...faults];
  return all.map(({ name, at, until }, index) => {
    const next = all[index + 1]?.at ?? end;
    // A request belongs to the fault during which it ends.
    const during = attempts.filter((attempt) => attempt.until >= at && attempt.until < next);
    const errors = during.filter(isError);
    const times = during
      .filter((attempt) => !isError(attempt) && attempt.path !== WAITING)
      .map(({ ms }) => ms)
      .sort((one, other) => one - other);
    const quantile = (share: number) =>
      Math.round(times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0);
    return {
      ...{ fault: name, seconds: seconds(until - at), requests: during.length, errors: errors.length },
      errorSeconds: errors.length === 0 ? 0 : seconds(Math.max(...errors.map(({ until }) => until)) - at),
      ...{ p50: quantile(0.5), p99: quantile(0.99), slowest: Math.round(times.at(-1) ?? 0) },
    };
  });
}

const seconds = (ms: number): number => Math.round(ms / 100) / 10;

/** Errors by path, status and code, such as `/tts: 503 CONFIG_ERROR`. */
export function errorsBySort(attempts: readonly Attempt[]): Record<string, number> {
  const sorts: Record<string, number> = {};
  for (const { path, status, code } of attempts.filter(isError)) {
    const sort = `${path}: ${status} ${code}`;
    sorts[sort] = (sorts[sort] ?? 0) + 1;
  }
  return sorts;
}
