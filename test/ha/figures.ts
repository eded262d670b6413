import type { Attempt } from './ask.ts';

/** What was done to the service, and when, by the monotonic clock. */
export interface Fault {
  readonly name: string;
  readonly at: number;
  /** When it was over: taken over, replaced, restarted. */
  readonly until: number;
}

/** What callers saw from a fault to the next one. */
export interface Figures {
  readonly fault: string;
  /** How long the fault itself took, in seconds. */
  readonly seconds: number;
  readonly requests: number;
  readonly errors: number;
  /** From the fault to the last error, in seconds; 0 without any. */
  readonly errorSeconds: number;
  /** Of answers without error, in milliseconds. */
  readonly p50: number;
  readonly p99: number;
  readonly slowest: number;
}

/** Callers wait for these on purpose: for blocks. */
const WAITING = /^deposit$/;

const isError = ({ status }: Attempt): boolean => status === 0 || status >= 500;

/** The figures before the first fault, and from each one on. */
export function figuresOf(attempts: readonly Attempt[], faults: readonly Fault[], end: number): Figures[] {
  const begin = Math.min(...attempts.map(({ at }) => at));
  const all = [{ name: 'none', at: begin, until: begin }, ...faults];
  return all.map(({ name, at, until }, index) => {
    const next = all[index + 1]?.at ?? end;
    // What was under way when it happened belongs to it.
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

/** Errors by flow and what they said, such as `card: 503 CONFIG_ERROR`. */
export const errorsBySort = (attempts: readonly Attempt[]): Record<string, number> => bySort(attempts.filter(isError));

/** Likewise, these attempts. */
export function bySort(attempts: readonly Attempt[]): Record<string, number> {
  const sorts: Record<string, number> = {};
  for (const attempt of attempts) {
    const sort = `${attempt.flow}: ${attempt.status} ${attempt.code}`;
    sorts[sort] = (sorts[sort] ?? 0) + 1;
  }
  return sorts;
}
