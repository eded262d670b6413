import {
  concat,
  createPublicClient,
  custom,
  type Log,
  numberToHex,
  type PublicClient,
  pad,
  type RpcTransactionReceipt,
  toFunctionSelector,
} from 'viem';
import { eachOf } from '../lib/each-of.ts';
import { newestConfirmed } from './confirmations.ts';
import type { Hex } from './envelope.ts';
import type { Asset } from './network.ts';
import type { Address } from './payees.ts';
import { Rpc, RpcError, RpcRefusal, rpcErrorOf } from './rpc.ts';
import {
  AUTHORIZATION_CANCELED,
  AUTHORIZATION_USED,
  proofIn,
  type ReceivedTransfer,
  receivedIn,
  TRANSFER,
  type TransferClaim,
  type TransferProof,
} from './transfer-proof.ts';

/** What is known of an authorization: used for its transfer, never to be used any more, or neither yet. */
export type ChainFinding = PaidFinding | { readonly outcome: 'unused' } | { readonly outcome: 'open' };

export interface PaidFinding {
  readonly outcome: 'paid';
  readonly proof: TransferProof;
  /** The transfer is deep enough to be credited (R44). */
  readonly isConfirmed: boolean;
}

const BALANCE_OF = toFunctionSelector('balanceOf(address)');
const AUTHORIZATION_STATE = toFunctionSelector('authorizationState(address,bytes32)');

/** Blocks that one search for logs asks for, and searches at most; an authorization lives for some minutes. */
export const RANGE_BLOCKS = 1_000n;
const MAX_RANGES = 50;
const RECEIPTS_AT_ONCE = 8;
/** A reorganisation may move a transfer at most so many blocks below the head that was known before it was sent. */
const REORGANIZED_BLOCKS = 64n;
/** How far past validBefore a block must be that stands in for a finalized one, at a node that knows none. */
const UNFINALIZED_SECONDS = 3_600n;

/** As the node writes it. */
type MinedLog = Log<Hex, Hex, false>;

interface Block {
  readonly number: bigint;
  readonly hash: Hex | null;
  /** Unix seconds. */
  readonly timestamp: bigint;
}

/** The newest block that counts for a verdict of failure. */
interface FinalBlock extends Block {
  /** False when it is only confirmed, because the node knows no finalized one. */
  readonly isFinalized: boolean;
}

/** One node of the chain, as far as it can be believed: what it proves counts, its silence does not. Throws RpcError. */
export class ChainNode {
  readonly #rpc: Rpc;
  readonly #client: PublicClient;
  readonly #asset: Asset;
  #isChecked = false;

  constructor(url: string, asset: Asset) {
    this.#rpc = new Rpc(url);
    const transport = custom(this.#rpc, { retryCount: 0 });
    this.#client = createPublicClient({ transport, cacheTime: 0, ccipRead: false });
    this.#asset = asset;
  }

  /** The number of its newest block. */
  head(): Promise<bigint> {
    return this.#ask((client) => client.getBlockNumber());
  }

  /** The asset's balance of the address, in atomic units. */
  balanceOf(address: Address): Promise<bigint> {
    return this.#view([BALANCE_OF, pad(address)], 'latest');
  }

  /**
   * What the node tells about the authorization; `headBlock` was the head before it could be used. Paid means a
   * successful receipt with AuthorizationUsed and its exact Transfer (R25). Unused for good means that the `finalized`
   * block is later than validBefore and the authorization is unused, or that it was cancelled, or used for another
   * transfer, in a block that is finalized. For a node that knows no finalized block, a confirmed one stands in (R44),
   * and an hour past validBefore where no second node has to agree.
   */
  async find(claim: TransferClaim, headBlock: bigint, isAlone: boolean): Promise<ChainFinding> {
    const head = await this.head();
    // A head that the node has not come to, another one has made up.
    const known = headBlock < head ? headBlock : head;
    let from = known > REORGANIZED_BLOCKS ? known - REORGANIZED_BLOCKS : 0n;
    for (let ranges = 1; ; ranges++) {
      const to = from + RANGE_BLOCKS - 1n < head ? from + RANGE_BLOCKS - 1n : head;
      const [log] = await this.#authorizationLogs(claim, from, to);
      if (log) return this.#judge(claim, log, head, isAlone);
      if (to === head || (await this.block(to)).timestamp > claim.validBefore) break;
      if (ranges === MAX_RANGES) return { outcome: 'open' };
      from = to + 1n;
    }
    const final = await this.#finalBlock(head);
    if (!isOver(final, claim, isAlone)) return { outcome: 'open' };
    // What is unused at the head is so in the final block too, whose state many nodes have forgotten.
    if (await this.#isUsed(claim, head)) return { outcome: 'open' };
    return { outcome: final.isFinalized || (await this.#isCanonical(final)) ? 'unused' : 'open' };
  }

  /** The proof within a transaction; undefined when it is not known yet, failed, or doesn't hold the transfer. */
  async prove(claim: TransferClaim, transaction: Hex): Promise<TransferProof | undefined> {
    const receipt = await this.#receipt(transaction);
    return receipt ? proofIn(receipt, this.#asset.address, claim) : undefined;
  }

  /** Whether the transfer is deep enough to be credited, judged by this node alone (R66). */
  async isConfirmed({ block, blockHash }: TransferProof): Promise<boolean> {
    if (block > newestConfirmed(await this.head())) return false;
    return this.#isCanonical({ number: block, hash: blockHash });
  }

  /** Whether the address has code. */
  async hasCode(address: Address): Promise<boolean> {
    return (await this.#ask((client) => client.getCode({ address }))) !== undefined;
  }

  /** Whether the authorization can be used no more. */
  async isSpent(claim: TransferClaim): Promise<boolean> {
    return this.#isUsed(claim, await this.head());
  }

  /** The transfers to these payees in these blocks, both included. @param payees in lower case */
  async received(payees: readonly Address[], from: bigint, to: bigint): Promise<ReceivedTransfer[]> {
    const logs = await this.#logs([TRANSFER, null, payees.map((payee) => pad(payee))], from, to);
    const transactions = [...new Set(logs.map(({ transactionHash }) => transactionHash))];
    const received: ReceivedTransfer[] = [];
    await eachOf(transactions, RECEIPTS_AT_ONCE, async (transaction) => {
      const receipt = await this.#receipt(transaction);
      if (!receipt) throw new RpcRefusal("The chain's node has a log, and no receipt of its transaction.");
      received.push(...receivedIn(receipt, this.#asset.address, payees));
    });
    return received;
  }

  async close(): Promise<void> {
    await this.#rpc.close();
  }

  /** Null while the transaction is in no block. */
  #receipt(transaction: Hex): Promise<RpcTransactionReceipt | null> {
    return this.#call('eth_getTransactionReceipt', [transaction]);
  }

  /** What an authorization was used for, or that it was cancelled. */
  async #judge(claim: TransferClaim, log: MinedLog, head: bigint, isAlone: boolean): Promise<ChainFinding> {
    const receipt = await this.#receipt(log.transactionHash);
    if (!receipt) return { outcome: 'open' };
    const proof = proofIn(receipt, this.#asset.address, claim);
    if (proof) return { outcome: 'paid', proof, isConfirmed: await this.isConfirmed(proof) };
    const used = { number: BigInt(log.blockNumber), hash: log.blockHash };
    const isFinal = isOver(await this.#finalBlock(head), claim, isAlone, used.number);
    // A reorganisation between the calls may have put receipt or log into another block, or nowhere.
    const isSettled = isFinal && receipt.blockHash === used.hash && (await this.#isCanonical(used));
    return { outcome: isSettled ? 'unused' : 'open' };
  }

  async #isCanonical({ number, hash }: Pick<Block, 'number' | 'hash'>): Promise<boolean> {
    return (await this.block(number)).hash === hash;
  }

  async #finalBlock(head: bigint): Promise<FinalBlock> {
    try {
      return { ...(await this.block('finalized')), isFinalized: true };
    } catch (error) {
      if (!(error instanceof RpcRefusal)) throw error;
      const deep = newestConfirmed(head);
      return { ...(await this.block(deep > 0n ? deep : 0n)), isFinalized: false };
    }
  }

  /** @throws RpcRefusal when the node does not know the block */
  block(block: bigint | 'finalized'): Promise<Block> {
    const which = block === 'finalized' ? { blockTag: block } : { blockNumber: block };
    return this.#ask((client) => client.getBlock(which));
  }

  /** viem's getLogs asks for one event by its arguments, or for several whatever their arguments. */
  #authorizationLogs({ payer, nonce }: TransferClaim, from: bigint, to: bigint): Promise<readonly MinedLog[]> {
    return this.#logs([[AUTHORIZATION_USED, AUTHORIZATION_CANCELED], pad(payer), nonce], from, to);
  }

  #logs(topics: readonly (Hex | readonly Hex[] | null)[], from: bigint, to: bigint): Promise<readonly MinedLog[]> {
    const range = { fromBlock: numberToHex(from), toBlock: numberToHex(to) };
    return this.#call('eth_getLogs', [{ address: this.#asset.address, topics, ...range }]);
  }

  async #isUsed({ payer, nonce }: TransferClaim, block: bigint): Promise<boolean> {
    return (await this.#view([AUTHORIZATION_STATE, pad(payer), nonce], numberToHex(block))) !== 0n;
  }

  /**
   * Calls a function of the asset that returns one word, with arguments of a word each. viem's readContract costs ten
   * times the CPU, and every payment asks for a balance.
   */
  async #view(call: readonly Hex[], block: Hex | 'latest'): Promise<bigint> {
    const request = { to: this.#asset.address, data: concat(call) };
    return BigInt(await this.#call<Hex>('eth_call', [request, block]));
  }

  /** A call whose answer is taken as it is. Past viem's client, which takes longer over it than the call itself. */
  async #call<T>(method: string, params: readonly unknown[]): Promise<T> {
    return (await this.#ask(() => this.#rpc.request({ method, params }))) as T;
  }

  async #ask<T>(question: (client: PublicClient) => Promise<T>): Promise<T> {
    try {
      if (!this.#isChecked) await this.#checkChain();
      return await question(this.#client);
    } catch (error) {
      throw rpcErrorOf(error);
    }
  }

  async #checkChain(): Promise<void> {
    const chainId = await this.#client.getChainId();
    if (chainId !== this.#asset.chainId) {
      throw new RpcError(`X402_RPC_URL is a node of chain ${chainId}, and X402_NETWORK is ${this.#asset.network}.`);
    }
    this.#isChecked = true;
  }
}

/** Whether the final block excludes that the authorization pays; `usedIn` is where it was cancelled, or paid another. */
function isOver(final: FinalBlock, { validBefore }: TransferClaim, isAlone: boolean, usedIn?: bigint): boolean {
  if (!final.isFinalized && isAlone && final.timestamp <= validBefore + UNFINALIZED_SECONDS) return false;
  return usedIn === undefined ? final.timestamp > validBefore : usedIn <= final.number;
}
