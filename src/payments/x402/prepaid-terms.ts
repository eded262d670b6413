import type { Asset } from '../../config/network.ts';
import type { Address } from '../../config/payees.ts';
import { DEPOSIT_TIMEOUT_SECONDS } from '../../config/x402-settings.ts';
import { SIGNATURE_LIFETIME_SECONDS } from '../../ledger/wallet-holds.ts';
import type { Eip712Domain } from '../../lib/wallet-signature.ts';
import { CONFIRMATIONS } from './transfer-proof.ts';

/**
 * The terms of prepaid balances, as the signed metadata publishes them. The bounds of a deposit's amount, in micro-USD, are
 * defined here and in the contract (R35); its confirmations and timeout are only repeated.
 */
export const PREPAID = {
  headers: ['x-x402-account', 'x-x402-nonce', 'x-x402-expiry', 'x-x402-max-amount', 'x-x402-signature'],
  domainVersion: '1',
  primaryType: 'PrepaidRequest',
  signatureTtlSeconds: SIGNATURE_LIFETIME_SECONDS,
  maxNonceLength: 128,
  minDepositMicroUsd: 100_000,
  maxDepositMicroUsd: 100_000_000,
  depositConfirmations: CONFIRMATIONS,
  depositTimeoutSeconds: DEPOSIT_TIMEOUT_SECONDS,
} as const;

export const prepaidDomainName = (serviceName: string): string => `${serviceName}-Prepaid`;

/** The EIP-712 domain of a prepaid request (R31): `<service>-Prepaid`, its version, the chain and the payee. */
export const prepaidDomain = (serviceName: string, asset: Asset, payee: Address): Eip712Domain => ({
  name: prepaidDomainName(serviceName),
  version: PREPAID.domainVersion,
  chainId: asset.chainId,
  verifyingContract: payee,
});
