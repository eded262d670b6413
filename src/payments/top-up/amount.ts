import { MIN_TOP_UP_CENTS } from '../../config/card-settings.ts';
import { formatCents } from '../../lib/money.ts';

export const OWN_AMOUNT = 'own';

/** An invalid or too small amount becomes the minimum, a too large one the maximum (R14). */
export function topUpAmount(text: string | undefined, maxCents: number): number {
  if (text === undefined || !/^\d+$/.test(text)) return MIN_TOP_UP_CENTS;
  return Math.min(Math.max(Number(text), MIN_TOP_UP_CENTS), maxCents);
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
