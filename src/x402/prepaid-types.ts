/**
 * What a prepaid request signs (specification, "Authentication" 4; R30), in the form that wallets and EIP-712 libraries
 * take. Who signs and who verifies make the digest from this one list.
 */
export const PREPAID_TYPES = {
  PrepaidRequest: [
    { name: 'account', type: 'address' },
    { name: 'method', type: 'string' },
    /** Without the query (R31). */
    { name: 'path', type: 'string' },
    { name: 'bodyHash', type: 'bytes32' },
    { name: 'maxAmountMicroUsd', type: 'uint256' },
    { name: 'nonce', type: 'string' },
    /** Unix seconds. */
    { name: 'expiry', type: 'uint256' },
  ],
} as const;
