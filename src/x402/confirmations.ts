/** How deep a transfer lies before it is credited: its own block counts, and those on top of it (R44), as viem counts. */
export const CONFIRMATIONS = 2;

/** The newest block that is so deep, where `head` is the newest of all. */
export const newestConfirmed = (head: bigint): bigint => head - BigInt(CONFIRMATIONS - 1);
