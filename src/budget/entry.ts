import type { Flow, PendingPurchase } from '../client/pending-purchase.ts';

/** What a budget's file says, one after the other. Amounts are micro-USD, days are those of UTC as YYYY-MM-DD. */
export type Entry =
  | {
      readonly kind: 'reserved';
      readonly id: string;
      /** Whose purchase it is: the name of the file that its process keeps locked. */
      readonly owner: string;
      readonly day: string;
      readonly flow: Flow;
      readonly maxMicroUsd: bigint;
    }
  | { readonly kind: 'recorded'; readonly id: string; readonly pending: PendingPurchase }
  | {
      readonly kind: 'settled';
      readonly id: string;
      readonly chargedMicroUsd: bigint;
      /** What was signed and, by the service's word, not charged. */
      readonly restMicroUsd?: bigint;
      /** Unix milliseconds until which the rest could still be spent. */
      readonly restUntil?: number;
      /** Of a credit account: what the service says is left of it. */
      readonly account?: string;
      readonly balanceMicroUsd?: bigint;
    }
  /** The sums of a day's settled purchases, which are no longer listed. */
  | {
      readonly kind: 'spent';
      readonly day: string;
      readonly chargedMicroUsd: bigint;
      readonly unconfirmedMicroUsd?: bigint;
    }
  /** The rest of a purchase that is no longer listed. It is part of the day's sum. */
  | { readonly kind: 'rest'; readonly day: string; readonly restMicroUsd: bigint; readonly restUntil: number }
  /** What a credit account is expected to have. */
  | { readonly kind: 'balance'; readonly account: string; readonly balanceMicroUsd: bigint };

const AMOUNTS: readonly string[] = [
  'maxMicroUsd',
  'chargedMicroUsd',
  'restMicroUsd',
  'unconfirmedMicroUsd',
  'balanceMicroUsd',
];
const DIGITS = /^\d+$/;

/** Entries that are kept together or not at all, as one line. */
export const writeLine = (entries: readonly Entry[]): string =>
  `${JSON.stringify(entries, (_key, value) => (typeof value === 'bigint' ? String(value) : value))}\n`;

/** The entries of a line; undefined for one that was never written whole. */
export function readLine(line: string): readonly Entry[] | undefined {
  try {
    const entries = JSON.parse(line);
    if (!Array.isArray(entries)) return undefined;
    return entries.map(readEntry);
  } catch {
    return undefined;
  }
}

/** Of an entry's members only its own amounts are bigints: a pending purchase is kept as it was given. */
function readEntry(entry: Record<string, unknown>): Entry {
  const members = Object.entries(entry).map(([name, value]) => {
    if (!AMOUNTS.includes(name)) return [name, value];
    if (typeof value !== 'string' || !DIGITS.test(value)) throw new Error(`${name} is no amount`);
    return [name, BigInt(value)];
  });
  return Object.fromEntries(members);
}
