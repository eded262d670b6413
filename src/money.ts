/** Micro-USD as US dollars with six decimal places, such as 4.999802. */
export function formatUsd(microUsd: bigint): string {
  return `${microUsd / 1_000_000n}.${String(microUsd % 1_000_000n).padStart(6, '0')}`;
}

/** Cents as US dollars with two decimal places, such as 5.00. */
export const formatCents = (cents: number): string => (cents / 100).toFixed(2);
