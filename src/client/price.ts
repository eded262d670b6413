import { priceMicroUsd } from '../speech/price.ts';

/** A rate in US dollars as a plain decimal, in 10^-12 USD. @throws TypeError when it is none */
export function picoUsd(decimal: string): bigint {
  const [, whole, fraction = ''] = /^(\d+)(?:\.(\d{1,12}))?$/.exec(decimal) ?? [];
  if (whole === undefined) throw new TypeError(`${decimal} is no rate in US dollars.`);
  return BigInt(whole + fraction.padEnd(12, '0'));
}

/** What a text costs: its trimmed UTF-16 length times the rate, rounded up to a micro-USD (R1, R3). */
export const priceOf = (text: string, ratePicoUsd: bigint): bigint => priceMicroUsd(text.trim().length, ratePicoUsd);

/** An amount in a header; null where there is none. */
export const readMicroUsd = (header: string | null): bigint | null =>
  header !== null && /^\d{1,18}$/.test(header) ? BigInt(header) : null;
