import { readMoment } from '../../lib/moment.ts';

const UNITS = { s: 1, min: 60, h: 3_600, d: 86_400 } as const;

/** A date and time, or an age such as 36h. Undefined if it is neither. */
export function readSince(text: string, now: Date): Date | undefined {
  const [, count, unit] = /^(\d{1,6})(s|min|h|d)$/.exec(text) ?? [];
  if (count !== undefined) return new Date(now.getTime() - Number(count) * UNITS[unit as keyof typeof UNITS] * 1000);
  return readMoment(text);
}

export function formatAge(seconds: number): string {
  const [unit, size] = Object.entries(UNITS).findLast(([, size]) => seconds >= size) ?? ['s', 1];
  return `${Math.floor(seconds / size)} ${unit}`;
}
