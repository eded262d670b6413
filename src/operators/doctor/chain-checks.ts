import { concat, pad, toEventSelector, toFunctionSelector, zeroAddress, zeroHash } from 'viem';
import { ASSET_DECIMALS, type Asset } from '../../config/network.ts';
import type { Address } from '../../config/payees.ts';
import { counted } from '../../lib/counted.ts';
import type { Hex } from '../../payments/x402/envelope.ts';
import { RANGE_BLOCKS, Rpc, RpcError, RpcRefusal } from '../../payments/x402/rpc.ts';
import { isConfiguredDomain } from '../../payments/x402/transfer-proof.ts';
import { type Check, type DoctorOptions, type Finding, fault, off, ok, skipped, warning } from './check.ts';

const AUTHORIZATION_USED = toEventSelector('AuthorizationUsed(address,bytes32)');
/** Code of an account that delegates to a contract and that its key still controls (EIP-7702). */
const DELEGATION = /^0xef0100/i;
const NAMES = ['node', 'node-logs', 'asset', 'payee'];
const LAG_WARNING_SECONDS = 30;
const LAG_FAULT_SECONDS = 120;
const AHEAD_SECONDS = 15;
const DAY_SECONDS = 86_400;
const MEASURED_BLOCKS = 1_000n;

export function chainChecks({ config: { x402 }, now }: DoctorOptions): readonly Check[] {
  if (!x402) return off(NAMES, 'USDC payment is off, because X402_PAY_TO is unset. Set it to turn it on.');
  const { rpcUrls, asset, payees } = x402;
  if (!rpcUrls)
    return off(NAMES, 'Direct payments and deposits are off, because X402_RPC_URL is unset. Set it to turn them on.');
  const [first] = rpcUrls;
  return [
    ...rpcUrls.flatMap((url, index): Check[] => {
      const about = `${index + 1} of ${rpcUrls.length}`;
      return [
        { name: 'node', about, run: () => withNode(url, (node) => isCurrent(node, asset, now)) },
        { name: 'node-logs', about, run: () => onOurChain(url, asset, keepsLogs) },
      ];
    }),
    { name: 'asset', run: () => onOurChain(first, asset, isRightAsset) },
    ...payees.map(({ address }) => ({
      name: 'payee',
      about: address,
      run: () => onOurChain(first, asset, (node) => isPlainAddress(node, address, asset)),
    })),
  ];
}

async function withNode(url: string, ask: (node: Rpc) => Promise<Finding>): Promise<Finding> {
  const node = new Rpc(url);
  try {
    return await ask(node);
  } finally {
    await node.close();
  }
}

/** Skipped if the node is of another chain, which the check `node` reports. */
const onOurChain = (url: string, asset: Asset, ask: (node: Rpc, asset: Asset) => Promise<Finding>): Promise<Finding> =>
  withNode(url, async (node) => {
    const chainId = await node.chainId().catch(() => undefined);
    return chainId === asset.chainId
      ? ask(node, asset)
      : skipped(
          'The node did not report its chain id, or is on another chain: fix what the check "node" says, then run doctor again.',
        );
  });

async function isCurrent(node: Rpc, asset: Asset, now: () => number): Promise<Finding> {
  try {
    const found = await node.chainId();
    if (found !== asset.chainId) {
      const fix = 'Set X402_RPC_URL to a node of the network that X402_NETWORK names.';
      return fault(`X402_RPC_URL names a node of chain ${found}, but X402_NETWORK is ${asset.network}.`, fix);
    }
    const { number, timestamp } = await node.block('latest');
    return await judgeAge(node, number, now() / 1000 - Number(timestamp));
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    return fault(
      error.message,
      'Correct X402_RPC_URL and the key or password in it, check your network, or use another node.',
    );
  }
}

async function judgeAge(node: Rpc, head: bigint, age: number): Promise<Finding> {
  const seconds = Math.round(Math.abs(age));
  if (age < -AHEAD_SECONDS) {
    const fix =
      'Synchronize the clock of this machine by NTP. If the clock is right, set X402_RPC_URL to another node.';
    return fault(`The node's newest block ${head} is ${seconds} s ahead of the clock of this machine.`, fix);
  }
  const old = `The node's newest block ${head} is ${seconds} s old`;
  const fix =
    'Set X402_RPC_URL to a node that keeps up with the chain. Payments are accepted only after the node shows them.';
  if (age > LAG_FAULT_SECONDS)
    return fault(`${old}: the node lags, or the clock of this machine is ahead.`, `Check that clock (NTP). ${fix}`);
  if (age > LAG_WARNING_SECONDS)
    return warning(
      `${old}.`,
      `${fix} If the node keeps up, the clock of this machine is ahead: synchronize it by NTP.`,
    );
  if (!(await isRefused(() => node.block('finalized')))) return ok(`${old}.`);
  return warning(
    `${old}, and the node reports no finalized block, so failed payments are detected an hour later.`,
    'Set X402_RPC_URL to a node that supports the block tag finalized in eth_getBlockByNumber.',
  );
}

/** The reconcilers look up failed payments again after a day (src/reconcile/x402-payments.ts). */
async function keepsLogs(node: Rpc, { address }: Asset): Promise<Finding> {
  const head = await node.block('latest');
  const before = await node.block(head.number > MEASURED_BLOCKS ? head.number - MEASURED_BLOCKS : 0n);
  const blockSeconds = Number(head.timestamp - before.timestamp) / Math.max(1, Number(head.number - before.number));
  const blocksOfDay = BigInt(Math.ceil(DAY_SECONDS / Math.max(blockSeconds, 0.01)));
  const from = blocksOfDay > head.number ? 0n : head.number - blocksOfDay;
  const topics = [[AUTHORIZATION_USED], zeroHash, zeroHash];
  let blocks = 0n;
  const lacks = await isRefused(async () => {
    await node.block(from);
    const { to } = await node.logs({ address, topics }, from, from + RANGE_BLOCKS - 1n);
    blocks = to - from + 1n;
  });
  if (lacks) {
    return fault(
      `The node does not return logs of a day ago (from block ${from}), so payments with an unclear outcome can stay unclear.`,
      `Use a node that keeps logs for at least two days and answers eth_getLogs for ${RANGE_BLOCKS} blocks.`,
    );
  }
  if (blocks < RANGE_BLOCKS) {
    return warning(
      `The node refuses the logs of ${RANGE_BLOCKS} blocks at once and returns those of ${blocks}, so searches need more calls.`,
      `Set X402_RPC_URL to a node that answers eth_getLogs for ${RANGE_BLOCKS} blocks.`,
    );
  }
  if (blocksOfDay > head.number) return ok('The node has the logs of the whole chain.');
  return ok(`The node has the logs of the last day, from block ${from} on.`);
}

async function isRightAsset(node: Rpc, asset: Asset): Promise<Finding> {
  const { address, name, version, chainId } = asset;
  const wrongAddress = 'Correct X402_ASSET and X402_NETWORK, or run doctor again if the node failed.';
  if ((await node.code(address)) === '0x')
    return fault(`X402_ASSET names no contract: ${asset.network} has none at ${address}.`, wrongAddress);
  const decimals = await wordOf(node, address, toFunctionSelector('decimals()'));
  if (decimals === undefined || BigInt(decimals) !== BigInt(ASSET_DECIMALS)) {
    const has = decimals === undefined ? 'reports no decimals' : `has ${counted(BigInt(decimals), 'decimal')}`;
    return fault(
      `The contract in X402_ASSET ${has}, but it must be a token with ${ASSET_DECIMALS} decimals.`,
      wrongAddress,
    );
  }
  const isUsed = concat([toFunctionSelector('authorizationState(address,bytes32)'), pad(address), zeroHash]);
  if ((await wordOf(node, address, isUsed)) === undefined) {
    return fault(
      'The token in X402_ASSET did not answer authorizationState (EIP-3009), which payments need.',
      wrongAddress,
    );
  }
  const separator = await wordOf(node, address, toFunctionSelector('DOMAIN_SEPARATOR()'));
  if (separator === undefined) {
    return ok(
      `The token has ${ASSET_DECIMALS} decimals. It does not report its EIP-712 domain, so the domain was not checked.`,
    );
  }
  if (isConfiguredDomain(BigInt(separator), asset)) {
    return ok(`The token has ${ASSET_DECIMALS} decimals and the EIP-712 domain ${name}, version ${version}.`);
  }
  return fault(
    `The token's EIP-712 domain is not ${name}, version ${version}, chain ${chainId}: so no payment would be valid.`,
    "Set X402_ASSET_NAME and X402_ASSET_VERSION to the results of the contract's name() and version().",
  );
}

/** Checks that the key of the address can move what is paid to it. */
async function isPlainAddress(node: Rpc, payee: Address, asset: Asset): Promise<Finding> {
  const fix = 'Set X402_PAY_TO to an address that you have the private key of.';
  if (payee === zeroAddress) return fault('The payee is the zero address: payments to it are lost.', fix);
  if (payee === asset.address)
    return fault('The payee is the address of the token itself: payments to it are lost.', fix);
  const code = await node.code(payee);
  if (code === '0x') return ok('The payee is an address without a contract, so its private key controls the USDC.');
  if (DELEGATION.test(code)) {
    return warning(
      'The payee delegates to a contract (EIP-7702), which can move its USDC.',
      'Make sure that you trust that contract.',
    );
  }
  return fault(
    'The payee is a contract: payments to it are lost unless the contract can move USDC.',
    `${fix} If the contract is your wallet, such as a Safe, use --skip payee.`,
  );
}

/** Undefined if the contract has no such function. */
function wordOf(node: Rpc, to: Address, data: Hex): Promise<Hex | undefined> {
  return node.request<Hex>('eth_call', [{ to, data }, 'latest']).catch((error) => {
    if (error instanceof RpcError) return undefined;
    throw error;
  });
}

function isRefused(ask: () => Promise<unknown>): Promise<boolean> {
  return ask().then(
    () => false,
    (error) => {
      if (error instanceof RpcRefusal) return true;
      throw error;
    },
  );
}
