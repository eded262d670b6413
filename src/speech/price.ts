const PICO_PER_MICRO = 1_000_000n;

/**
 * Price in whole micro-USD, so often below a cent: characters x rate, rounded up (R3). There is no minimum beyond 1. The
 * rate is in 10^-12 USD per character and includes the markup.
 */
export function priceMicroUsd(characters: number, ratePicoUsd: bigint): bigint {
  return (BigInt(characters) * ratePicoUsd + PICO_PER_MICRO - 1n) / PICO_PER_MICRO;
}

/** Whether a text within the maximum length has this price. @param ratePicoUsd 10^-12 USD per character */
export function isPrice(microUsd: bigint, ratePicoUsd: bigint, mostCharacters: number): boolean {
  if (microUsd <= 0n) return false;
  const fewest = ((microUsd - 1n) * PICO_PER_MICRO) / ratePicoUsd + 1n;
  return fewest <= mostCharacters && priceMicroUsd(Number(fewest), ratePicoUsd) === microUsd;
}

/** The operator's cost in micro-USD with fractions: characters x rate. */
export const costMicroUsd = (characters: number, baseRatePicoUsd: bigint): number =>
  (characters * Number(baseRatePicoUsd)) / Number(PICO_PER_MICRO);
