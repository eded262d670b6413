/** Money is in micro-USD, 0.000001 USD: one atomic unit of USDC (R73). */
export const MICRO_USD_PER_CENT = 10_000n;

export const DECIMAL_USD = /^(\d{1,9})(?:\.(\d{1,6}))?$/;
const DOLLARS = /* @__PURE__ */ new Intl.NumberFormat('en-US', {
  style: 'currency',
  currency: 'USD',
  maximumFractionDigits: 6,
});

/** Micro-USD to US dollars with six decimal places, such as 4.999802. */
export function formatUsd(microUsd: bigint): string {
  if (microUsd < 0n) return `-${formatUsd(-microUsd)}`;
  return `${microUsd / 1_000_000n}.${String(microUsd % 1_000_000n).padStart(6, '0')}`;
}

/** US dollars with at most six decimal places, such as 0.01, to micro-USD; undefined if malformed. */
export function parseUsd(decimal: string): bigint | undefined {
  const [, dollars, parts = ''] = DECIMAL_USD.exec(decimal) ?? [];
  return dollars === undefined ? undefined : BigInt(dollars + parts.padEnd(6, '0'));
}

export const formatDollars = (microUsd: bigint): string => DOLLARS.format(formatUsd(microUsd) as `${number}`);

export const formatCents = (cents: number): string => formatDollars(BigInt(cents) * MICRO_USD_PER_CENT);
