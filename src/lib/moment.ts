const DAY = /^\d{4}-\d\d-\d\d$/;
const MOMENT = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)(Z|[+-]\d\d:?\d\d)$/;

/**
 * A moment as an operator writes it: a day such as 2026-11-01, which begins at midnight UTC, or date, time and time zone
 * (ISO 8601, a space for the T too). Undefined for anything else, a day that the calendar does not have among it.
 */
export function readMoment(text: string): Date | undefined {
  const [, day, time, zone] = MOMENT.exec(text) ?? [];
  if (day === undefined && !DAY.test(text)) return undefined;
  const midnight = new Date(day ?? text);
  // A day that the calendar does not have becomes one of the next month.
  if (Number.isNaN(midnight.getTime()) || !midnight.toISOString().startsWith(day ?? text)) return undefined;
  if (day === undefined) return midnight;
  const at = new Date(`${day}T${time}${zone?.replace(/(\d\d)(\d\d)$/, '$1:$2')}`);
  return Number.isNaN(at.getTime()) ? undefined : at;
}

/** Whether the text names a day, and no moment within one. */
export const isDay = (text: string): boolean => DAY.test(text);
