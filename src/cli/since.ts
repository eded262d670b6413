import { readMoment } from '../lib/moment.ts';

const UNITS = { s: 1, min: 60, h: 3_600, d: 86_400 } as const;

/** A moment as an operator writes it, or how long ago, such as 36h; undefined for others. */
export function readSince(text: string, now: Date): Date | undefined {
  const [, count, unit] = /^(\d{1,6})(s|min|h|d)$/.exec(text) ?? [];
  if (count !== undefined) return new Date(now.getTime() - Number(count) * UNITS[unit as keyof typeof UNITS] * 1000);
  return readMoment(text);
}

/** How long something takes or took, in its largest unit, such as 3 h. */
export function formatAge(seconds: number): string {
  const [unit, size] = Object.entries(UNITS).findLast(([, size]) => seconds >= size) ?? ['s', 1];
  return `${Math.floor(seconds / size)} ${unit}`;
}
