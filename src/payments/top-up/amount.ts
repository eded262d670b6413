import { MIN_TOP_UP_CENTS } from '../../config/card-settings.ts';
import { formatCents } from '../../lib/money.ts';

export const OWN_AMOUNT = 'own';

/** An invalid or too small amount becomes the minimum of 500 cents, a too large one the maximum (R14); the note says so. */
export function topUpAmount(
  text: string | undefined,
  maxCents: number,
): { readonly cents: number; readonly note?: string } {
  if (!text) return { cents: MIN_TOP_UP_CENTS };
  const least = formatCents(MIN_TOP_UP_CENTS);
  const cents = Number(text);
  if (!/^\d+$/.test(text)) {
    return {
      cents: MIN_TOP_UP_CENTS,
      note: `The amount in the URL is not a whole number of cents, so ${least} is chosen.`,
    };
  }
  if (cents < MIN_TOP_UP_CENTS) {
    return { cents: MIN_TOP_UP_CENTS, note: `The amount in the URL is too small, so the minimum ${least} is chosen.` };
  }
  if (cents > maxCents) {
    return {
      cents: maxCents,
      note: `The amount in the URL is too large, so the maximum ${formatCents(maxCents)} is chosen.`,
    };
  }
  return { cents };
}

export function typedAmount(text: string, maxCents: number) {
  const [, dollars, cents = ''] = /^\$?\s*(\d+)(?:\.(\d{1,2}))?$/.exec(text.trim()) ?? [];
  if (dollars === undefined)
    return refused('format', 'The amount must be in US dollars, such as 12.50. You were not charged.');
  const amount = Number(dollars) * 100 + Number(cents.padEnd(2, '0'));
  if (amount < MIN_TOP_UP_CENTS)
    return refused('minimum', `The amount must be at least ${formatCents(MIN_TOP_UP_CENTS)}. You were not charged.`);
  if (amount > maxCents)
    return refused('maximum', `The amount must be at most ${formatCents(maxCents)}. You were not charged.`);
  return { outcome: 'read' as const, cents: amount };
}

const refused = (rule: 'format' | 'minimum' | 'maximum', message: string) =>
  ({ outcome: 'refused', rule, message }) as const;
