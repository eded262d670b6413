export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** @param values at least one */
export function spread(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = (sorted.length - 1) / 2;
  const median = ((sorted[Math.floor(middle)] as number) + (sorted[Math.ceil(middle)] as number)) / 2;
  return { median, min: sorted[0] as number, max: sorted.at(-1) as number };
}

/** The smallest value that at least this share of the values does not exceed. @throws without values */
export function quantile(values: readonly number[], share: number): number {
  if (values.length === 0) throw new Error('no request was served within the time');
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] as number;
}

// How the tables show figures.
export const whole = (value: number): string => Math.round(value).toLocaleString('en-US');
export const mebibytes = (bytes: number): string => whole(bytes / 1024 ** 2);
export const wholeSpread = ({ median, min, max }: Spread): string => `${whole(median)} (${whole(min)}–${whole(max)})`;
export const verdict = (isReached: boolean): string => (isReached ? 'reached' : 'missed');
