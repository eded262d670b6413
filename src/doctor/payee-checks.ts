import { zeroAddress } from 'viem';
import type { Asset } from '../x402/network.ts';
import type { Address } from '../x402/payees.ts';
import type { AskedNode } from './asked-node.ts';
import { type Finding, fault, ok, warning } from './check.ts';

/** Code of an account that has delegated itself to a contract, and is still moved by its key (EIP-7702). */
const DELEGATION = /^0xef0100/i;

/** Whether what is paid there can be moved by whoever has the key of the address. */
export async function isPlainAddress(node: AskedNode, payee: Address, asset: Asset): Promise<Finding> {
  const fix = 'Set X402_PAY_TO to an address whose key you have.';
  if (payee === zeroAddress) return fault('It is the zero address: what is paid there is lost.', fix);
  if (payee === asset.address) return fault('It is the token itself: what is paid there is lost.', fix);
  const code = await node.codeOf(payee);
  if (code === '0x') return ok('It is a plain address.');
  if (DELEGATION.test(code)) {
    return warning('Its account has delegated itself to a contract (EIP-7702).', 'Make sure that you know which one.');
  }
  return fault(
    'It is a contract: what is paid there is lost unless the contract can move USDC.',
    `${fix} If it is a wallet of yours that can (such as a Safe), leave this check out: --skip payee.`,
  );
}
