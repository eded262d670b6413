import type { Address } from './payees.ts';

/** The payment token on one EVM network. One atomic unit (0.000001 USDC) is one micro-USD (R73). */
export interface Asset {
  readonly network: `eip155:${number}`;
  readonly chainId: number;
  /** With EIP-55 checksum. */
  readonly address: Address;
  readonly name: string;
  readonly version: string;
}

export const ASSET_SYMBOL = 'USDC';
export const ASSET_DECIMALS = 6;
export const DEFAULT_NETWORK = 'eip155:8453';
export const DEFAULT_ASSET = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
