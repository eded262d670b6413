const DAY = /^\d{4}-\d\d-\d\d$/;
const MOMENT = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)(Z|[+-]\d\d:?\d\d)$/;

/** Reads a day (midnight UTC), or date, time and zone (ISO 8601). Returns undefined for a day that does not exist. */
export function readMoment(text: string): Date | undefined {
  const [, day, time, zone] = MOMENT.exec(text) ?? [];
  if (day === undefined && !DAY.test(text)) return undefined;
  const midnight = new Date(day ?? text);
  // Date turns a day that does not exist into one of the next month.
  if (Number.isNaN(midnight.getTime()) || !midnight.toISOString().startsWith(day ?? text)) return undefined;
  if (day === undefined) return midnight;
  const at = new Date(`${day}T${time}${zone?.replace(/(\d\d)(\d\d)$/, '$1:$2')}`);
  return Number.isNaN(at.getTime()) ? undefined : at;
}

export const isDay = (text: string): boolean => DAY.test(text);
