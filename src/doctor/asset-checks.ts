import { domainSeparator } from 'viem';
import { ASSET_DECIMALS, type Asset } from '../x402/network.ts';
import { RpcError } from '../x402/rpc.ts';
import type { AskedNode } from './asked-node.ts';
import { type Finding, fault, ok } from './check.ts';

/** Whether the token is at its address, counts as we do, and takes the signatures that callers are told to make. */
export async function isRightAsset(node: AskedNode, asset: Asset): Promise<Finding> {
  const { address, name, version, chainId } = asset;
  const wrongAddress = 'Correct X402_ASSET and X402_NETWORK.';
  if ((await node.codeOf(address)) === '0x') return fault(`There is no contract at ${address}.`, wrongAddress);
  const decimals = await told(() => node.word(address, 'decimals()'));
  if (decimals === undefined || BigInt(decimals) !== BigInt(ASSET_DECIMALS)) {
    const has = decimals === undefined ? 'tells no decimals' : `has ${BigInt(decimals)} decimals`;
    return fault(`The contract ${has}, and prices are in a token of ${ASSET_DECIMALS}.`, wrongAddress);
  }
  if ((await told(() => node.knowsAuthorizations(asset).then(() => true))) === undefined) {
    return fault('The token knows no transfers by authorization (EIP-3009).', wrongAddress);
  }
  const separator = await told(() => node.word(address, 'DOMAIN_SEPARATOR()'));
  const expected = domainSeparator({ domain: { name, version, chainId, verifyingContract: address } });
  if (separator === undefined) {
    return ok(`The token has ${ASSET_DECIMALS} decimals; it does not tell its EIP-712 domain.`);
  }
  if (separator.toLowerCase() === expected) {
    return ok(`The token has ${ASSET_DECIMALS} decimals and the EIP-712 domain ${name}, version ${version}.`);
  }
  return fault(
    `The token's EIP-712 domain is not ${name}, version ${version}, chain ${chainId}: no signature would be valid.`,
    "Set X402_ASSET_NAME and X402_ASSET_VERSION to what the contract's name() and version() say.",
  );
}

/** Undefined where the contract has no such function. */
async function told<T>(call: () => Promise<T>): Promise<T | undefined> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof RpcError) return undefined;
    throw error;
  }
}
