/** The published facts of prepaid balances (specification, "Prepaid x402" and "Limits"). Amounts in micro-USD. */
export const PREPAID = {
  headers: ['x-x402-account', 'x-x402-nonce', 'x-x402-expiry', 'x-x402-max-amount', 'x-x402-signature'],
  signatureTtlSeconds: 120,
  minDepositMicroUsd: 100_000,
  maxDepositMicroUsd: 100_000_000,
} as const;
