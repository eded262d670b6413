/**
 * How deep a transfer lies before it is credited: its own block counts, and those on top of it (R44), as viem counts.
 * Deposits wait for it, while their request lasts (chain.ts) and afterwards (resolver.ts). Direct speech does not wait.
 */
export const CONFIRMATIONS = 2;

/** The newest block that is so deep, where `head` is the newest of all. */
export const newestConfirmed = (head: bigint): bigint => head - BigInt(CONFIRMATIONS - 1);
