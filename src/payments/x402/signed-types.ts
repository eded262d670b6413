/** The EIP-712 type of a transfer that its payer has signed (EIP-3009). */
export const TRANSFER_TYPES = {
  TransferWithAuthorization: [
    { name: 'from', type: 'address' },
    { name: 'to', type: 'address' },
    { name: 'value', type: 'uint256' },
    { name: 'validAfter', type: 'uint256' },
    { name: 'validBefore', type: 'uint256' },
    { name: 'nonce', type: 'bytes32' },
  ],
} as const;

/** The EIP-712 type of a prepaid request (R31), in the form that libraries take. */
export const PREPAID_TYPES = {
  PrepaidRequest: [
    { name: 'account', type: 'address' },
    { name: 'method', type: 'string' },
    { name: 'path', type: 'string' },
    { name: 'bodyHash', type: 'bytes32' },
    { name: 'maxAmountMicroUsd', type: 'uint256' },
    { name: 'nonce', type: 'string' },
    /** Unix seconds. */
    { name: 'expiry', type: 'uint256' },
  ],
} as const;

/** How a prepaid request names its message, and the headers that carry it, as the signed metadata publishes them (R37). */
export const PREPAID_SIGNING = {
  headers: ['x-x402-account', 'x-x402-nonce', 'x-x402-expiry', 'x-x402-max-amount', 'x-x402-signature'],
  domainVersion: '1',
  primaryType: 'PrepaidRequest',
} as const;

export const prepaidDomainName = (serviceName: string): string => `${serviceName}-Prepaid`;

/** The EIP-712 domain of a prepaid request (R31): `<service>-Prepaid`, its version, the chain and the payee. */
export const prepaidDomain = (serviceName: string, chainId: number, payee: `0x${string}`) => ({
  name: prepaidDomainName(serviceName),
  version: PREPAID_SIGNING.domainVersion,
  chainId,
  verifyingContract: payee,
});
