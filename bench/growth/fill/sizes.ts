/** How much of everything a ledger is filled with. */
export interface FillSizes {
  /** Half of them of cards, half wallets. */
  readonly accounts: number;
  /** Of all kinds together; at least two for each account. */
  readonly transfers: number;
  /** Settled payments in USDC: a deposit of each wallet, the others for speech. */
  readonly payments: number;
  readonly failedPayments: number;
  /** Jobs that have ended. */
  readonly jobs: number;
  /** Jobs that are due in half a day. */
  readonly queuedJobs: number;
  /** Holds of requests that run. */
  readonly pendingHolds: number;
  readonly reversals: number;
  /** Purchases that came to nothing, and those whose session is open. */
  readonly expiredPurchases: number;
  readonly openPurchases: number;
  readonly windows: number;
  readonly feedback: number;
  /** Over how many days all this has happened. */
  readonly days: number;
  /** How old the oldest spent nonce is that is still known. */
  readonly nonceHours: number;
}

/** A ledger of a service that has run for ten days, with ten transfers for each account. */
export function sizesFor(accounts: number): FillSizes {
  return {
    accounts,
    transfers: accounts * 10,
    payments: Math.floor(accounts * 0.9),
    failedPayments: Math.floor(accounts / 100),
    jobs: Math.floor(accounts / 10),
    queuedJobs: Math.floor(accounts / 2000),
    pendingHolds: Math.floor(accounts / 2000),
    reversals: Math.floor(accounts / 1000),
    expiredPurchases: Math.floor(accounts / 10),
    openPurchases: Math.floor(accounts / 2000),
    windows: Math.floor(accounts / 10),
    feedback: Math.floor(accounts / 200),
    days: 10,
    nonceHours: 25,
  };
}
