import type { RpcTransactionReceipt } from 'viem';
import type { Asset } from '../../config/network.ts';
import type { Address } from '../../config/payees.ts';
import { eachOf } from '../../lib/each-of.ts';
import type { OutsideCalls } from '../../observability/outside.ts';
import { concat, numberToHex, pad, toFunctionSelector } from './abi.ts';
import type { Hex } from './envelope.ts';
import { type Block, type LogFilter, type MinedLog, Rpc, RpcError, RpcRefusal } from './rpc.ts';
import {
  AUTHORIZATION_CANCELED,
  AUTHORIZATION_USED,
  isConfiguredDomain,
  newestConfirmed,
  proofIn,
  type ReceivedTransfer,
  receivedIn,
  TRANSFER,
  type TransferClaim,
  type TransferProof,
} from './transfer-proof.ts';

/** The authorization was used for its transfer, can never be used any more, or neither yet. */
export type ChainFinding = PaidFinding | { readonly outcome: 'unused' } | { readonly outcome: 'open' };

export interface PaidFinding {
  readonly outcome: 'paid';
  readonly proof: TransferProof;
  readonly isConfirmed: boolean;
}

interface Search {
  readonly headBlock: bigint;
  readonly transaction: Hex | undefined;
  readonly isAlone: boolean;
}

const BALANCE_OF = toFunctionSelector('balanceOf(address)');
const DOMAIN_SEPARATOR = toFunctionSelector('DOMAIN_SEPARATOR()');
const AUTHORIZATION_STATE = toFunctionSelector('authorizationState(address,bytes32)');

const MAX_SEARCHED_BLOCKS = 50_000n;
const RECEIPTS_AT_ONCE = 8;
/** How far below the head that was known before sending a reorganisation may move a transfer. */
const REORGANIZED_BLOCKS = 64n;
/** How far past validBefore a block must be to replace a finalized one, on a single node that knows none. */
const UNFINALIZED_SECONDS = 3_600n;

/** The newest block that can prove a failure: finalized, or only confirmed if the node knows no finalized one. */
type FinalBlock = Block & { readonly isFinalized: boolean };

/** One node of the chain. What it proves counts; its silence proves nothing. Throws RpcError. */
export class ChainNode {
  readonly #rpc: Rpc;
  readonly #asset: Asset;
  #isChecked = false;

  constructor(url: string, asset: Asset, onNarrowRange?: (blocks: bigint) => void, calls?: OutsideCalls) {
    this.#rpc = new Rpc(url, onNarrowRange, calls);
    this.#asset = asset;
  }

  async head(): Promise<bigint> {
    return BigInt(await this.#call<Hex>('eth_blockNumber', []));
  }

  balanceOf(address: Address): Promise<bigint> {
    return this.#view([BALANCE_OF, pad(address)], 'latest');
  }

  /** Throws RpcError also for a token that does not report its domain. */
  async hasConfiguredDomain(): Promise<boolean> {
    return isConfiguredDomain(await this.#view([DOMAIN_SEPARATOR], 'latest'), this.#asset);
  }

  /**
   * Finds what the node shows of the authorization. `headBlock` was the head before it could be used, `transaction` is
   * the one that is said to use it: its receipt is read first, and needs no logs.
   *
   * Paid: a successful receipt has AuthorizationUsed and its exact Transfer (R25). Unused: the `finalized` block is
   * later than validBefore and the authorization is unused. Unused too: a finalized block cancelled it, or used it
   * otherwise. If the node knows no finalized block, a confirmed one counts (R44); a single node must be an hour past
   * validBefore.
   */
  async find(claim: TransferClaim, search: Search): Promise<ChainFinding> {
    const { headBlock, transaction, isAlone } = search;
    const named = transaction && (await this.prove(claim, transaction));
    if (named) return this.#paid(named);
    const head = await this.head();
    // A head that this node has not reached may be another node's invention.
    const known = headBlock < head ? headBlock : head;
    const first = known > REORGANIZED_BLOCKS ? known - REORGANIZED_BLOCKS : 0n;
    const topics = [[AUTHORIZATION_USED, AUTHORIZATION_CANCELED], pad(claim.payer), claim.nonce];
    for (let from = first; ; ) {
      const { logs, to } = await this.#logs(topics, from, head);
      if (logs[0]) return this.#judge(claim, logs[0], head, isAlone);
      if (to === head || (await this.block(to)).timestamp > claim.validBefore) break;
      if (to - first >= MAX_SEARCHED_BLOCKS) return { outcome: 'open' };
      from = to + 1n;
    }
    const final = await this.#finalBlock(head);
    if (!isOver(final, claim, isAlone)) return { outcome: 'open' };
    // Unused at the head means unused in the final block, whose state many nodes no longer have.
    if (await this.#isUsed(claim, head)) return { outcome: 'open' };
    return { outcome: final.isFinalized || (await this.#isCanonical(final)) ? 'unused' : 'open' };
  }

  async prove(claim: TransferClaim, transaction: Hex): Promise<TransferProof | undefined> {
    const receipt = await this.#receipt(transaction);
    return receipt ? proofIn(receipt, this.#asset.address, claim) : undefined;
  }

  /** Whether the transfer is deep enough to be credited, judged by this node alone (R35, R66). */
  async isConfirmed({ block, blockHash }: TransferProof): Promise<boolean> {
    if (block > newestConfirmed(await this.head())) return false;
    return this.#isCanonical({ number: block, hash: blockHash });
  }

  async hasCode(address: Address): Promise<boolean> {
    return (await (await this.#checked()).code(address)) !== '0x';
  }

  async isSpent(claim: TransferClaim): Promise<boolean> {
    return this.#isUsed(claim, await this.head());
  }

  /** Transfers to the payees from a block on, and the last block that was read. */
  async received(payees: readonly Address[], from: bigint, last: bigint) {
    const { logs, to } = await this.#logs([TRANSFER, null, payees.map((payee) => pad(payee))], from, last);
    const transactions = [...new Set(logs.map(({ transactionHash }) => transactionHash))];
    const received: ReceivedTransfer[] = [];
    await eachOf(transactions, RECEIPTS_AT_ONCE, async (transaction) => {
      const receipt = await this.#receipt(transaction);
      if (!receipt) {
        throw new RpcRefusal("The chain's node returned a log but no receipt of its transaction. Try again later.");
      }
      received.push(...receivedIn(receipt, this.#asset.address, payees));
    });
    return { received, to };
  }

  async close(): Promise<void> {
    await this.#rpc.close();
  }

  #receipt(transaction: Hex): Promise<RpcTransactionReceipt | null> {
    return this.#call('eth_getTransactionReceipt', [transaction]);
  }

  async #paid(proof: TransferProof): Promise<PaidFinding> {
    return { outcome: 'paid', proof, isConfirmed: await this.isConfirmed(proof) };
  }

  async #judge(claim: TransferClaim, log: MinedLog, head: bigint, isAlone: boolean): Promise<ChainFinding> {
    const receipt = await this.#receipt(log.transactionHash);
    if (!receipt) return { outcome: 'open' };
    const proof = proofIn(receipt, this.#asset.address, claim);
    if (proof) return this.#paid(proof);
    const used = { number: BigInt(log.blockNumber), hash: log.blockHash };
    const isFinal = isOver(await this.#finalBlock(head), claim, isAlone, used.number);
    // A reorganisation between the calls may have moved the receipt or the log, or removed it.
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

  async block(which: bigint | 'latest' | 'finalized'): Promise<Block> {
    return (await this.#checked()).block(which);
  }

  async #logs(topics: LogFilter['topics'], from: bigint, last: bigint) {
    return (await this.#checked()).logs({ address: this.#asset.address, topics }, from, last);
  }

  async #isUsed({ payer, nonce }: TransferClaim, block: bigint): Promise<boolean> {
    return (await this.#view([AUTHORIZATION_STATE, pad(payer), nonce], numberToHex(block))) !== 0n;
  }

  /** Calls a function with words as arguments and result. */
  async #view(call: readonly Hex[], block: Hex | 'latest'): Promise<bigint> {
    const request = { to: this.#asset.address, data: concat(call) };
    return BigInt(await this.#call<Hex>('eth_call', [request, block]));
  }

  async #call<T>(method: string, params: readonly unknown[]): Promise<T> {
    return (await this.#checked()).request<T>(method, params);
  }

  /** The node, once it is known to be one of the right chain. */
  async #checked(): Promise<Rpc> {
    if (this.#isChecked) return this.#rpc;
    const chainId = await this.#rpc.chainId();
    if (chainId !== this.#asset.chainId) {
      throw new RpcError(
        `X402_RPC_URL names a node of chain ${chainId}, but X402_NETWORK is ${this.#asset.network}. Correct one of them.`,
      );
    }
    this.#isChecked = true;
    return this.#rpc;
  }
}

/** Whether the final block excludes a payment. @param usedIn where it was cancelled, or used for another transfer */
function isOver(final: FinalBlock, { validBefore }: TransferClaim, isAlone: boolean, usedIn?: bigint): boolean {
  if (!final.isFinalized && isAlone && final.timestamp <= validBefore + UNFINALIZED_SECONDS) return false;
  return usedIn === undefined ? final.timestamp > validBefore : usedIn <= final.number;
}
