import { setTimeout as sleep } from 'node:timers/promises';
import { encodeFunctionData, numberToHex, pad, parseAbi, toEventSelector } from 'viem';
import type { Hex } from './envelope.ts';
import type { Asset } from './network.ts';
import type { Address } from './payees.ts';
import { Rpc, RpcError } from './rpc.ts';

/** What an authorization promises to the payee; addresses and nonce in lower case. */
export interface TransferClaim {
  readonly payer: Address;
  readonly nonce: Hex;
  readonly payTo: Address;
  /** Atomic units. */
  readonly amount: bigint;
  /** Unix seconds. */
  readonly validBefore: bigint;
}

/** The transfer that used an authorization, in a successful receipt. */
export interface TransferProof {
  readonly transaction: Hex;
  /** Of the Transfer event within its block. */
  readonly logIndex: number;
  readonly block: bigint;
}

/** What the chain tells about an authorization: used for its transfer, never to be used any more, or neither yet. */
export type ChainFinding =
  /** `isConfirmed` when another block is on top of the transfer's (R44). */
  | { readonly outcome: 'paid'; readonly proof: TransferProof; readonly isConfirmed: boolean }
  | { readonly outcome: 'unused' }
  | { readonly outcome: 'open' };

interface Log {
  readonly address: string;
  readonly topics: readonly string[];
  readonly data: string;
  readonly logIndex: string;
  readonly blockNumber: string;
  readonly transactionHash: string;
}

interface Receipt {
  readonly status: string;
  readonly blockNumber: string;
  readonly transactionHash: string;
  readonly logs: readonly Log[];
}

const ABI = parseAbi([
  'function balanceOf(address account) view returns (uint256)',
  'function authorizationState(address authorizer, bytes32 nonce) view returns (bool)',
]);
const AUTHORIZATION_USED = toEventSelector('AuthorizationUsed(address,bytes32)');
const AUTHORIZATION_CANCELED = toEventSelector('AuthorizationCanceled(address,bytes32)');
const TRANSFER = toEventSelector('Transfer(address,address,uint256)');

/** Blocks that one search for logs asks for, and searches at most; an authorization lives for some minutes. */
const RANGE_BLOCKS = 1_000n;
const MAX_RANGES = 50;
/** A reorganisation may move a transfer at most so many blocks below the head that was known before it was sent. */
const REORGANIZED_BLOCKS = 64n;
/** A head this old still counts as the present one. */
const HEAD_AGE_MS = 1_000;
const POLL_MS = 100;

/** Reads from the chain whether authorizations were used. It never writes. Every method throws RpcError. */
export class Chain {
  readonly #rpc: Rpc;
  readonly #asset: Asset;
  #isChecked = false;
  #head: { at: number; block: Promise<bigint> } | undefined;

  constructor(url: string, asset: Asset) {
    this.#rpc = new Rpc(url);
    this.#asset = asset;
  }

  /** The number of a block that is the newest one, or was a moment ago. */
  head(): Promise<bigint> {
    const now = performance.now();
    if (!this.#head || now - this.#head.at > HEAD_AGE_MS) {
      const block = this.#readHead();
      this.#head = { at: now, block };
      block.catch(() => {
        this.#head = undefined;
      });
    }
    return this.#head.block;
  }

  /** The asset's balance of the address, in atomic units. */
  async balanceOf(address: Address): Promise<bigint> {
    const data = encodeFunctionData({ abi: ABI, functionName: 'balanceOf', args: [address] });
    return BigInt(await this.#ethCall(data, 'latest'));
  }

  /** Whether the address has code: it is a contract, or its key delegates to one (EIP-7702). */
  async hasCode(address: Address): Promise<boolean> {
    return (await this.#call('eth_getCode', [address, 'latest'])) !== '0x';
  }

  /**
   * Whether the authorization was used for its transfer; `headBlock` was the head before it could be. Used means a
   * successful receipt with AuthorizationUsed and its exact Transfer; unused for good that it was cancelled, used for
   * another transfer, or is unused in a block that is 2 deep and later than validBefore (R25, R44).
   */
  async find(claim: TransferClaim, headBlock: bigint): Promise<ChainFinding> {
    const head = await this.#readHead();
    const deep = head - 1n;
    let ended = false;
    const first = headBlock > REORGANIZED_BLOCKS ? headBlock - REORGANIZED_BLOCKS : 0n;
    for (let from = first, ranges = 0; from <= head && ranges < MAX_RANGES && !ended; ranges++) {
      const to = from + RANGE_BLOCKS - 1n < head ? from + RANGE_BLOCKS - 1n : head;
      for (const log of await this.#authorizationLogs(claim, from, to)) {
        const receipt = await this.#receipt(log.transactionHash as Hex);
        if (!receipt) return { outcome: 'open' };
        const proof = proofIn(receipt, this.#asset.address, claim);
        if (proof) return { outcome: 'paid', proof, isConfirmed: proof.block <= deep };
        if (BigInt(log.blockNumber) <= deep) return { outcome: 'unused' };
      }
      ended = (await this.#timestamp(to < deep ? to : deep)) > claim.validBefore;
      from = to + 1n;
    }
    return ended && !(await this.#isUsed(claim, deep)) ? { outcome: 'unused' } : { outcome: 'open' };
  }

  /** Whether the authorization can be used no more: it was used for its transfer or another one, or cancelled. */
  async isSpent(claim: TransferClaim): Promise<boolean> {
    return this.#isUsed(claim, await this.#readHead());
  }

  /** The proof within a transaction; undefined when it is not known yet, failed, or doesn't hold the transfer. */
  async prove(claim: TransferClaim, transaction: Hex): Promise<TransferProof | undefined> {
    const receipt = await this.#receipt(transaction);
    return receipt ? proofIn(receipt, this.#asset.address, claim) : undefined;
  }

  /** Waits until the transaction proves the transfer; undefined when it does not in time, for whatever reason. */
  async awaitProof(claim: TransferClaim, transaction: Hex, patienceMs: number): Promise<TransferProof | undefined> {
    for (const giveUpAt = performance.now() + patienceMs; ; await sleep(POLL_MS)) {
      const proof = await this.prove(claim, transaction).catch((error) => {
        if (!(error instanceof RpcError)) throw error;
        return undefined;
      });
      if (proof || performance.now() >= giveUpAt) return proof;
    }
  }

  /**
   * Waits until the transfer is 2 blocks deep (R44); undefined when it is not in time, or the signal says stop. With
   * each new head the receipt is read again, so that one which a reorganisation took away does not count; when it is
   * not the named transaction that holds the transfer, it is searched.
   */
  async awaitConfirmed(
    claim: TransferClaim,
    transaction: Hex,
    headBlock: bigint,
    { patienceMs, signal }: { patienceMs: number; signal: AbortSignal },
  ): Promise<TransferProof | undefined> {
    const giveUpAt = performance.now() + patienceMs;
    for (let seen = -1n; ; ) {
      try {
        const head = await this.head();
        if (head !== seen) {
          const proof = await this.prove(claim, transaction);
          if (proof && proof.block < head) return proof;
          const found = proof ? undefined : await this.find(claim, headBlock);
          if (found?.outcome === 'paid' && found.isConfirmed) return found.proof;
        }
        seen = head;
      } catch (error) {
        if (!(error instanceof RpcError)) throw error;
      }
      if (signal.aborted || performance.now() >= giveUpAt) return undefined;
      await sleep(POLL_MS, undefined, { signal }).catch(() => {});
    }
  }

  async close(): Promise<void> {
    await this.#rpc.close();
  }

  async #receipt(transaction: Hex): Promise<Receipt | null> {
    return (await this.#call('eth_getTransactionReceipt', [transaction])) as Receipt | null;
  }

  async #readHead(): Promise<bigint> {
    return BigInt((await this.#call('eth_blockNumber', [])) as string);
  }

  async #timestamp(block: bigint): Promise<bigint> {
    const found = (await this.#call('eth_getBlockByNumber', [numberToHex(block), false])) as {
      timestamp: string;
    } | null;
    if (!found) throw new RpcError("The chain's node does not know a block that it told of.");
    return BigInt(found.timestamp);
  }

  async #authorizationLogs({ payer, nonce }: TransferClaim, from: bigint, to: bigint): Promise<Log[]> {
    const topics = [[AUTHORIZATION_USED, AUTHORIZATION_CANCELED], pad(payer), nonce];
    const range = { fromBlock: numberToHex(from), toBlock: numberToHex(to) };
    return (await this.#call('eth_getLogs', [{ address: this.#asset.address, topics, ...range }])) as Log[];
  }

  async #isUsed({ payer, nonce }: TransferClaim, block: bigint): Promise<boolean> {
    const data = encodeFunctionData({ abi: ABI, functionName: 'authorizationState', args: [payer, nonce] });
    return BigInt(await this.#ethCall(data, numberToHex(block))) !== 0n;
  }

  async #ethCall(data: Hex, block: string): Promise<string> {
    const result = (await this.#call('eth_call', [{ to: this.#asset.address, data }, block])) as string;
    if (!/^0x[0-9a-f]{1,64}$/i.test(result)) throw new RpcError('The asset is no such token on this chain.');
    return result;
  }

  async #call(method: string, params: readonly unknown[]): Promise<unknown> {
    if (!this.#isChecked) {
      const chainId = Number(await this.#rpc.call('eth_chainId', []));
      if (chainId !== this.#asset.chainId) {
        throw new RpcError(`X402_RPC_URL is a node of chain ${chainId}, and X402_NETWORK is ${this.#asset.network}.`);
      }
      this.#isChecked = true;
    }
    return this.#rpc.call(method, params);
  }
}

/**
 * The Transfer that the authorization made: the token's first event after AuthorizationUsed (EIP-3009 tokens mark first
 * and move then), with exactly the claimed payer, payee and amount. Other transfers of the transaction don't count.
 */
function proofIn(receipt: Receipt, asset: Address, claim: TransferClaim): TransferProof | undefined {
  if (receipt.status !== '0x1') return undefined;
  const own = receipt.logs.filter(({ address }) => address.toLowerCase() === asset.toLowerCase());
  const used = own.findIndex(
    ({ topics }) => topics[0] === AUTHORIZATION_USED && topics[1] === pad(claim.payer) && topics[2] === claim.nonce,
  );
  const transfer = used === -1 ? undefined : own[used + 1];
  if (!transfer) return undefined;
  const [event, from, to] = transfer.topics;
  const isExact =
    event === TRANSFER &&
    from === pad(claim.payer) &&
    to === pad(claim.payTo) &&
    /^0x[0-9a-f]{64}$/i.test(transfer.data) &&
    BigInt(transfer.data) === claim.amount;
  if (!isExact) return undefined;
  return {
    transaction: receipt.transactionHash.toLowerCase() as Hex,
    logIndex: Number(transfer.logIndex),
    block: BigInt(receipt.blockNumber),
  };
}
