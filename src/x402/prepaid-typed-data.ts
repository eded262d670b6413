import { type Message, structHasher } from '../crypto/eip712.ts';

/**
 * What a prepaid request signs (specification, "Authentication" 4; R30), in the form that wallets and EIP-712 libraries
 * take. The digest that is verified here is made from the same list.
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

/** The values of those fields. */
export type PrepaidRequest = Message<typeof PREPAID_TYPES.PrepaidRequest>;

/** The request's part of the digest. */
export const hashPrepaidRequest = structHasher('PrepaidRequest', PREPAID_TYPES.PrepaidRequest);
