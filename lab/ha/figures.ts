import type { Attempt } from './ask.ts';

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
const WAITING = /^deposit$/;

const isError = ({ status }: Attempt): boolean => status === 0 || status >= 500;

/** Figures before the first fault and after each fault. */
export function figuresOf(attempts: readonly Attempt[], faults: readonly Fault[], end: number): Figures[] {
  const begin = Math.min(...attempts.map(({ at }) => at));
  const all = [{ name: 'none', at: begin, until: begin }, ...faults];
  return all.map(({ name, at, until }, index) => {
    const next = all[index + 1]?.at ?? end;
    // A request belongs to the fault during which it ends.
    const during = attempts.filter((attempt) => attempt.at + attempt.ms >= at && attempt.at + attempt.ms < next);
    const errors = during.filter(isError);
    const times = during
      .filter((attempt) => !isError(attempt) && !WAITING.test(attempt.flow))
      .map(({ ms }) => ms)
      .sort((one, other) => one - other);
    const at100 = (share: number) =>
      Math.round(times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0);
    return {
      ...{ fault: name, seconds: seconds(until - at), requests: during.length, errors: errors.length },
      errorSeconds: errors.length === 0 ? 0 : seconds(Math.max(...errors.map(({ at, ms }) => at + ms)) - at),
      ...{ p50: at100(0.5), p99: at100(0.99), slowest: Math.round(times.at(-1) ?? 0) },
    };
  });
}

const seconds = (ms: number): number => Math.round(ms / 100) / 10;

/** Errors by flow, status and code, such as `card: 503 CONFIG_ERROR`. */
export function errorsBySort(attempts: readonly Attempt[]): Record<string, number> {
  const sorts: Record<string, number> = {};
  for (const { flow, status, code } of attempts.filter(isError)) {
    const sort = `${flow}: ${status} ${code}`;
    sorts[sort] = (sorts[sort] ?? 0) + 1;
  }
  return sorts;
}
