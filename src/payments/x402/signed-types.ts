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
