import type { Address } from './payees.ts';

/** The token that is paid with, on one EVM network. Its amounts are atomic units, equal to micro-USD. */
export interface Asset {
  /** CAIP-2 name, such as eip155:8453. */
  readonly network: `eip155:${number}`;
  readonly chainId: number;
  /** With its checksum (EIP-55). */
  readonly address: Address;
  /** Name and version of the token's EIP-712 domain. */
  readonly name: string;
  readonly version: string;
}

export const ASSET_SYMBOL = 'USDC';
export const ASSET_DECIMALS = 6;
/** Network and asset unless they are configured: USDC on Base. */
export const DEFAULT_NETWORK = 'eip155:8453';
export const DEFAULT_ASSET = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
