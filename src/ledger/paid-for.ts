/** What a charge or a spend pays for; it is kept with the transfer, so that the audit can compare the amount. No text. */
export interface PaidFor {
  /** Id in the catalog. */
  readonly model: string;
  /** UTF-16 code units of the trimmed text (R1). */
  readonly characters: number;
  /** In 10^-12 USD per character; null when the price was quoted at a rate that the catalog has no longer. */
  readonly ratePicoUsd: bigint | null;
  /** Of the request that placed the hold. */
  readonly traceId: string;
}

/** Who spoke what is paid for. */
export interface SpokenBy {
  /** The upstream. */
  readonly name: string;
  /** What a character costs the operator there, in 10^-12 USD; null where the catalog does not tell. */
  readonly costPicoUsd: bigint | null;
}
