/** Where the outside and the ledger differ in a period, by one purchase, refund, dispute or transfer. */
export interface Difference {
  readonly what: string;
  readonly id: string;
  /** What the outside has more than the ledger, in micro-USD. */
  readonly microUsd: bigint;
  /** Why that is no loss; null when nothing explains it. */
  readonly because: string | null;
}

/** The outside's books of a period beside the ledger's. All amounts are in micro-USD. */
export interface Comparison {
  readonly outside: bigint;
  readonly ledger: bigint;
  readonly differences: readonly Difference[];
  /** What of the outside's own the ledger does not keep, such as fees and what others sold; its name and the sum. */
  readonly apart: Readonly<Record<string, bigint>>;
}
