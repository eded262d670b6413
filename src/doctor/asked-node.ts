import { concat, numberToHex, pad, toEventSelector, toFunctionSelector, zeroHash } from 'viem';
import type { Hex } from '../x402/envelope.ts';
import type { Asset } from '../x402/network.ts';
import type { Address } from '../x402/payees.ts';
import { Rpc, RpcRefusal } from '../x402/rpc.ts';

const AUTHORIZATION_USED = toEventSelector('AuthorizationUsed(address,bytes32)');
const AUTHORIZATION_STATE = toFunctionSelector('authorizationState(address,bytes32)');
/** Blocks that the service asks for at once when it looks for a payment (src/x402/chain-node.ts). */
const RANGE_BLOCKS = 1_000n;

export interface Block {
  readonly number: bigint;
  /** Unix seconds. */
  readonly timestamp: number;
}

/** One node of the chain, asked by hand whatever chain it is of. Throws RpcError. */
export class AskedNode {
  readonly #rpc: Rpc;

  constructor(url: string) {
    this.#rpc = new Rpc(url);
  }

  async chainId(): Promise<number> {
    return Number(await this.#call<Hex>('eth_chainId', []));
  }

  /** @throws RpcRefusal where the node has no such block */
  async block(which: bigint | 'latest' | 'finalized'): Promise<Block> {
    const tag = typeof which === 'bigint' ? numberToHex(which) : which;
    const block = await this.#call<{ number: Hex; timestamp: Hex } | null>('eth_getBlockByNumber', [tag, false]);
    if (!block) throw new RpcRefusal("The chain's node does not know a block.");
    return { number: BigInt(block.number), timestamp: Number(block.timestamp) };
  }

  /** Asks for an authorization's logs as the service does, from this block on. Tells nothing of them. */
  async searchLogs(asset: Address, from: bigint): Promise<void> {
    const topics = [[AUTHORIZATION_USED], zeroHash, zeroHash];
    const range = { fromBlock: numberToHex(from), toBlock: numberToHex(from + RANGE_BLOCKS - 1n) };
    await this.#call('eth_getLogs', [{ address: asset, topics, ...range }]);
  }

  async codeOf(address: Address): Promise<Hex> {
    return this.#call<Hex>('eth_getCode', [address, 'latest']);
  }

  /** A word that a function of the contract without arguments tells. */
  async word(contract: Address, signature: string): Promise<Hex> {
    return this.#call<Hex>('eth_call', [{ to: contract, data: toFunctionSelector(signature) }, 'latest']);
  }

  /** Fails where the contract knows no authorizations (EIP-3009). */
  async knowsAuthorizations({ address }: Asset): Promise<void> {
    const data = concat([AUTHORIZATION_STATE, pad(address), zeroHash]);
    await this.#call('eth_call', [{ to: address, data }, 'latest']);
  }

  close(): Promise<void> {
    return this.#rpc.close();
  }

  async #call<T>(method: string, params: readonly unknown[]): Promise<T> {
    return (await this.#rpc.request({ method, params })) as T;
  }
}
