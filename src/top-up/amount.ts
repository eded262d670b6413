/** The smallest purchase of credit (specification, "Limits"). */
export const MIN_TOP_UP_CENTS = 500;

/** The cents that a buyer is asked for: what is no whole number or too small becomes the minimum, too much the maximum (R14). */
export function topUpAmount(text: string | undefined, maxCents: number): number {
  if (text === undefined || !/^\d+$/.test(text)) return MIN_TOP_UP_CENTS;
  return Math.min(Math.max(Number(text), MIN_TOP_UP_CENTS), maxCents);
}
