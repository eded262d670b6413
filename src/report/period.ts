/** From a moment, which it contains, up to another one, which it does not. */
export interface Period {
  readonly from: Date;
  readonly to: Date;
}

const DAY = /^\d{4}-\d{2}-\d{2}$/;
const MOMENT = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2})$/;
const DAY_MS = 86_400_000;

/**
 * Reads a day such as 2026-11-01, which begins at midnight UTC, or a moment with its time zone.
 * @param isEnd a day counts to its end
 * @returns undefined when it is neither
 */
export function readMoment(text: string, { isEnd = false } = {}): Date | undefined {
  if (!DAY.test(text) && !MOMENT.test(text)) return undefined;
  const at = new Date(text);
  // A day that the calendar does not have becomes one of the next month.
  if (Number.isNaN(at.getTime()) || (DAY.test(text) && !at.toISOString().startsWith(text))) return undefined;
  return DAY.test(text) && isEnd ? new Date(at.getTime() + DAY_MS) : at;
}
