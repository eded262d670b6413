import type { Hex } from 'viem';
import { UsageError } from '../usage-error.ts';

const KEY = /^(0x)?([0-9a-f]{64})$/i;

/**
 * The private key of a wallet.
 * @param name of where it was found
 * @throws UsageError, which does not show it
 */
export function readWalletKey(text: string, name: string): Hex {
  const [, , digits] = KEY.exec(text.trim()) ?? [];
  if (digits !== undefined) return `0x${digits.toLowerCase()}`;
  throw new UsageError(`${name} takes the private key of a wallet, 64 hexadecimal digits.`);
}
