import { formatCents } from '../lib/money.ts';

/** The smallest purchase of credit (specification, "Limits"). */
export const MIN_TOP_UP_CENTS = 500;

/** The value of `amount` with which `ownAmount` is read. */
export const OWN_AMOUNT = 'own';

/**
 * The cents that a buyer is asked for: what is no whole number or too small becomes the minimum, too much the maximum
 * (R14).
 * @param maxCents TOP_UP_MAX_CENTS
 */
export function topUpAmount(text: string | undefined, maxCents: number): number {
  if (text === undefined || !/^\d+$/.test(text)) return MIN_TOP_UP_CENTS;
  return Math.min(Math.max(Number(text), MIN_TOP_UP_CENTS), maxCents);
}

/** What a person typed: the cents to pay, or the rule that it breaks, with a message for that person. */
export type TypedAmount =
  | { readonly outcome: 'read'; readonly cents: number }
  | { readonly outcome: 'refused'; readonly rule: 'format' | 'minimum' | 'maximum'; readonly message: string };

/** Reads dollars as a person types them, such as 12.50 or $20. No amount is changed into another one. */
export function typedAmount(text: string, maxCents: number): TypedAmount {
  const [, dollars, cents = ''] = /^\$?\s*(\d+)(?:\.(\d{1,2}))?$/.exec(text.trim()) ?? [];
  if (dollars === undefined)
    return { outcome: 'refused', rule: 'format', message: 'Type an amount in US dollars, such as 12.50.' };
  const amount = Number(dollars) * 100 + Number(cents.padEnd(2, '0'));
  if (amount < MIN_TOP_UP_CENTS) {
    return {
      outcome: 'refused',
      rule: 'minimum',
      message: `The amount must be at least ${formatCents(MIN_TOP_UP_CENTS)}.`,
    };
  }
  if (amount > maxCents)
    return { outcome: 'refused', rule: 'maximum', message: `The amount must be at most ${formatCents(maxCents)}.` };
  return { outcome: 'read', cents: amount };
}
