import type { Eip712Domain } from '../crypto/eip712.ts';
import { SIGNATURE_LIFETIME_SECONDS } from '../ledger/wallets.ts';
import { CONFIRMATIONS } from './confirmations.ts';
import type { Asset } from './network.ts';
import type { Address } from './payees.ts';

/** The published facts of prepaid balances (specification, "Prepaid x402" and "Limits"). Amounts in micro-USD. */
export const PREPAID = {
  headers: ['x-x402-account', 'x-x402-nonce', 'x-x402-expiry', 'x-x402-max-amount', 'x-x402-signature'],
  domainVersion: '1',
  primaryType: 'PrepaidRequest',
  signatureTtlSeconds: SIGNATURE_LIFETIME_SECONDS,
  maxNonceLength: 128,
  minDepositMicroUsd: 100_000,
  maxDepositMicroUsd: 100_000_000,
  depositConfirmations: CONFIRMATIONS,
  depositTimeoutSeconds: 120,
} as const;

export const prepaidDomainName = (serviceName: string): string => `${serviceName}-Prepaid`;

/** The EIP-712 domain of prepaid requests that name this payee. */
export const prepaidDomain = (serviceName: string, asset: Asset, payee: Address): Eip712Domain => ({
  name: prepaidDomainName(serviceName),
  version: PREPAID.domainVersion,
  chainId: asset.chainId,
  verifyingContract: payee,
});
