export const MICRO_USD_PER_CENT = 10_000n;

/** US dollars as a decimal, such as 0.01. */
export const DECIMAL_USD = /^(\d{1,9})(?:\.(\d{1,6}))?$/;
const DOLLARS = new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD', maximumFractionDigits: 6 });

/** Micro-USD as US dollars with six decimal places, such as 4.999802. */
export function formatUsd(microUsd: bigint): string {
  if (microUsd < 0n) return `-${formatUsd(-microUsd)}`;
  return `${microUsd / 1_000_000n}.${String(microUsd % 1_000_000n).padStart(6, '0')}`;
}

/** US dollars as a decimal with at most six places, such as 0.01, in micro-USD; undefined for anything else. */
export function parseUsd(decimal: string): bigint | undefined {
  const [, dollars, parts = ''] = DECIMAL_USD.exec(decimal) ?? [];
  return dollars === undefined ? undefined : BigInt(dollars + parts.padEnd(6, '0'));
}

/** Micro-USD for people: $20.00, and $19.999028 where there are parts of a cent. */
export const formatDollars = (microUsd: bigint): string => DOLLARS.format(formatUsd(microUsd) as `${number}`);

/** Cents for people, such as $5.00. */
export const formatCents = (cents: number): string => formatDollars(BigInt(cents) * MICRO_USD_PER_CENT);
