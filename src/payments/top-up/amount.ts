import { MIN_TOP_UP_CENTS } from '../../config/card-settings.ts';
import { formatCents } from '../../lib/money.ts';

export const OWN_AMOUNT = 'own';

/** An invalid or too small amount becomes the minimum, a too large one the maximum (R14). */
export function topUpAmount(text: string | undefined, maxCents: number): number {
  if (text === undefined || !/^\d+$/.test(text)) return MIN_TOP_UP_CENTS;
  return Math.min(Math.max(Number(text), MIN_TOP_UP_CENTS), maxCents);
}

/** Why another amount was chosen than the text says; undefined if it was not. */
export function whyOtherAmount(text: string | undefined, maxCents: number): string | undefined {
  if (text === undefined || text === '' || Number(text) === topUpAmount(text, maxCents)) return undefined;
  if (!/^\d+$/.test(text))
    return `The URL's amount is no whole number of cents, so ${formatCents(MIN_TOP_UP_CENTS)} is chosen.`;
  return Number(text) < MIN_TOP_UP_CENTS
    ? `The smallest purchase is ${formatCents(MIN_TOP_UP_CENTS)}, so it is chosen.`
    : `The largest purchase is ${formatCents(maxCents)}, so it is chosen.`;
}

export function typedAmount(text: string, maxCents: number) {
  const [, dollars, cents = ''] = /^\$?\s*(\d+)(?:\.(\d{1,2}))?$/.exec(text.trim()) ?? [];
  if (dollars === undefined) return refused('format', 'Type an amount in US dollars, such as 12.50.');
  const amount = Number(dollars) * 100 + Number(cents.padEnd(2, '0'));
  if (amount < MIN_TOP_UP_CENTS)
    return refused('minimum', `The amount must be at least ${formatCents(MIN_TOP_UP_CENTS)}.`);
  if (amount > maxCents) return refused('maximum', `The amount must be at most ${formatCents(maxCents)}.`);
  return { outcome: 'read' as const, cents: amount };
}

const refused = (rule: 'format' | 'minimum' | 'maximum', message: string) =>
  ({ outcome: 'refused', rule, message }) as const;
