export const MICRO_USD_PER_CENT = 10_000n;

const DOLLARS = new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD', maximumFractionDigits: 6 });

/** Micro-USD as US dollars with six decimal places, such as 4.999802. */
export function formatUsd(microUsd: bigint): string {
  if (microUsd < 0n) return `-${formatUsd(-microUsd)}`;
  return `${microUsd / 1_000_000n}.${String(microUsd % 1_000_000n).padStart(6, '0')}`;
}

/** Micro-USD for people: $20.00, and $19.999028 where there are parts of a cent. */
export const formatDollars = (microUsd: bigint): string => DOLLARS.format(formatUsd(microUsd) as `${number}`);

/** Cents for people, such as $5.00. */
export const formatCents = (cents: number): string => formatDollars(BigInt(cents) * MICRO_USD_PER_CENT);
