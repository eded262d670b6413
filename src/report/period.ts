import { isDay, readMoment } from '../lib/moment.ts';

/** From a moment, which it contains, up to another one, which it does not. */
export interface Period {
  readonly from: Date;
  readonly to: Date;
}

const DAY_MS = 86_400_000;

/** Where a period ends that was named by its last day or by a moment; undefined when the text is neither. */
export function readEnd(text: string): Date | undefined {
  const at = readMoment(text);
  return at && isDay(text) ? new Date(at.getTime() + DAY_MS) : at;
}
