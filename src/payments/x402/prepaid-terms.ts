import { DEPOSIT_TIMEOUT_SECONDS } from '../../config/x402-settings.ts';
import { SIGNATURE_LIFETIME_SECONDS } from '../../ledger/wallet-holds.ts';
import { CONFIRMATIONS } from './transfer-proof.ts';

/**
 * The terms of prepaid balances, as the signed metadata publishes them. The bounds of a deposit's amount, in micro-USD, are
 * defined here and in the contract (R35); its confirmations and timeout are only repeated.
 */
export const PREPAID = {
  signatureTtlSeconds: SIGNATURE_LIFETIME_SECONDS,
  maxNonceLength: 128,
  minDepositMicroUsd: 100_000,
  maxDepositMicroUsd: 100_000_000,
  depositConfirmations: CONFIRMATIONS,
  depositTimeoutSeconds: DEPOSIT_TIMEOUT_SECONDS,
} as const;
