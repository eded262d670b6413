const PICO_PER_MICRO = 1_000_000n;

/** Price of a text in whole micro-USD: characters x rate, rounded up (R3). The rate is in 10^-12 USD per character. */
export function priceMicroUsd(characters: number, ratePicoUsd: bigint): bigint {
  return (BigInt(characters) * ratePicoUsd + PICO_PER_MICRO - 1n) / PICO_PER_MICRO;
}
