export interface FillSizes {
  /** Half of them card accounts, half wallets. */
  readonly accounts: number;
  /** All kinds together. At least two for each account. */
  readonly transfers: number;
  /** Settled payments in USDC: one deposit for each wallet, the others for speech. */
  readonly payments: number;
  readonly failedPayments: number;
  /** Jobs that have ended. */
  readonly jobs: number;
  /** Jobs that are due after the run. */
  readonly queuedJobs: number;
  readonly expiredPurchases: number;
  readonly openPurchases: number;
  readonly windows: number;
  readonly feedback: number;
  /** Days of history. */
  readonly days: number;
  /** Age of the oldest nonce that is still stored. */
  readonly nonceHours: number;
}

/** Ten days of history. @param transfers by default ten for each account */
export function sizesFor(accounts: number, transfers = accounts * 10): FillSizes {
  return {
    ...{ accounts, transfers },
    payments: Math.floor(accounts * 0.9),
    failedPayments: Math.floor(accounts / 100),
    jobs: Math.floor(accounts / 10),
    queuedJobs: Math.floor(accounts / 2000),
    expiredPurchases: Math.floor(accounts / 10),
    openPurchases: Math.floor(accounts / 2000),
    windows: Math.floor(accounts / 10),
    feedback: Math.floor(accounts / 200),
    days: 10,
    nonceHours: 25,
  };
}
