import { setTimeout as sleep } from 'node:timers/promises';
import { type ChainFinding, ChainNode, type PaidFinding } from './chain-node.ts';
import type { Hex } from './envelope.ts';
import type { Asset } from './network.ts';
import type { Address } from './payees.ts';
import { type DatedTransfer, readReceived } from './received-transfers.ts';
import { RpcError } from './rpc.ts';
import type { TransferClaim } from './transfer-proof.ts';

export type { ChainFinding, PaidFinding } from './chain-node.ts';
export type { TransferClaim, TransferProof } from './transfer-proof.ts';

/** Addresses of the chain's nodes, at least one. */
export type NodeUrls = readonly [string, ...string[]];

/** A transfer that is waited for. */
export interface AwaitedTransfer {
  readonly claim: TransferClaim;
  /** The head before the authorization could be used. */
  readonly headBlock: bigint;
  /** The transaction that is said to hold it. */
  readonly transaction: Hex | undefined;
  /** Waits until the transfer can be credited (R44); else inclusion is enough. */
  readonly needsConfirmation: boolean;
}

/** A head this old still counts as the present one. */
const HEAD_AGE_MS = 1_000;
/** How often a transaction is looked up until it is included, and how often anything else is asked while waiting. */
const POLL_MS = 100;
const SLOW_POLL_MS = 1_000;
/** How long the chain is searched for a transfer whose transaction is not known. */
const UNSEEN_TIMEOUT_MS = 5_000;

/**
 * Reads from the chain whether authorizations were used, through one node or several. It never writes. Any node's proof
 * of a payment counts; that there is none, and will be none, counts when all of them say so (see ChainNode.find). Every
 * method throws RpcError when no node answers.
 */
export class Chain {
  readonly #nodes: readonly ChainNode[];
  #head: { at: number; block: Promise<bigint> } | undefined;

  /** @param urls of the nodes; the first one is asked first */
  constructor(urls: NodeUrls, asset: Asset) {
    this.#nodes = urls.map((url) => new ChainNode(url, asset));
  }

  /** The number of a block that is the newest one, or was a moment ago. */
  head(): Promise<bigint> {
    const now = performance.now();
    if (!this.#head || now - this.#head.at > HEAD_AGE_MS) {
      const block = this.#first((node) => node.head());
      this.#head = { at: now, block };
      block.catch(() => {
        this.#head = undefined;
      });
    }
    return this.#head.block;
  }

  /** The asset's balance of the address, in atomic units. */
  balanceOf(address: Address): Promise<bigint> {
    return this.#first((node) => node.balanceOf(address));
  }

  /** Whether the address has code: it is a contract, or its key delegates to one (EIP-7702). */
  hasCode(address: Address): Promise<boolean> {
    return this.#first((node) => node.hasCode(address), isTrue);
  }

  /**
   * Whether the authorization was used for its transfer; `headBlock` was the head before it could be. Paid when one node
   * proves it, unused for good when every node says so; a node that fails, or says otherwise, leaves it open.
   */
  async find(claim: TransferClaim, headBlock: bigint): Promise<ChainFinding> {
    const ask = (nodes: readonly ChainNode[]) =>
      Promise.allSettled(nodes.map((node) => node.find(claim, headBlock, this.#nodes.length === 1)));
    const answers = await ask(this.#nodes.slice(0, 1));
    if (!answers.some(isConfirmedPayment)) answers.push(...(await ask(this.#nodes.slice(1))));
    const findings = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
    if (findings.length === 0) throw failureOf(answers);
    const proofs = findings.filter((finding) => finding.outcome === 'paid');
    const paid = proofs.find(({ isConfirmed }) => isConfirmed) ?? proofs[0];
    if (paid) return paid;
    const isUnused = findings.length === answers.length && findings.every(({ outcome }) => outcome === 'unused');
    return { outcome: isUnused ? 'unused' : 'open' };
  }

  /** Whether the authorization can be used no more: it was used for its transfer or another one, or cancelled. */
  isSpent(claim: TransferClaim): Promise<boolean> {
    return this.#first((node) => node.isSpent(claim), isTrue);
  }

  /**
   * The payment within a transaction; undefined when no node knows it yet, it failed, or doesn't hold the transfer.
   * @param needsConfirmation asks each node that shows it whether it is deep enough, and prefers one that says so
   */
  prove(claim: TransferClaim, transaction: Hex, needsConfirmation = false): Promise<PaidFinding | undefined> {
    return this.#first(
      async (node): Promise<PaidFinding | undefined> => {
        const proof = await node.prove(claim, transaction);
        if (!proof) return undefined;
        return { outcome: 'paid', proof, isConfirmed: needsConfirmation && (await node.isConfirmed(proof)) };
      },
      (found) => found !== undefined && (found.isConfirmed || !needsConfirmation),
    );
  }

  /**
   * The confirmed transfers to these payees since then, in the chain's order: each that any node shows.
   * @param payees in lower case
   */
  async received(payees: readonly Address[], since: Date): Promise<DatedTransfer[]> {
    const answers = await Promise.allSettled(this.#nodes.map((node) => readReceived(node, payees, since)));
    const shown = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
    if (shown.length === 0) throw failureOf(answers);
    const transfers = new Map(shown.flat().map((each) => [identityOf(each), each]));
    return [...transfers.values()].sort((a, b) => Number(a.block - b.block) || a.logIndex - b.logIndex);
  }

  /**
   * Waits for a transfer, however it is told of it: the named transaction is looked up, and where that does not hold the
   * transfer, or none is named, the transfer is searched. Returns what was seen last, which is not confirmed when the time
   * is over or the signal says stop before that. Without a known transaction the search ends after 5 s: the transfer
   * may never come. Looks once at least; a node that does not answer is asked again.
   */
  async awaitTransfer(
    { claim, headBlock, transaction, needsConfirmation }: AwaitedTransfer,
    { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined },
  ): Promise<PaidFinding | undefined> {
    const askedAt = performance.now();
    const pollMs = transaction && !needsConfirmation ? POLL_MS : SLOW_POLL_MS;
    const looksPerSearch = SLOW_POLL_MS / pollMs;
    let seen: PaidFinding | undefined;
    for (let looks = 1; ; looks++) {
      try {
        const named = transaction && (await this.prove(claim, transaction, needsConfirmation));
        const isSearched = !named && looks % looksPerSearch === 0;
        const found = isSearched ? await this.find(claim, headBlock) : named;
        seen = found?.outcome === 'paid' ? found : undefined;
      } catch (error) {
        if (!(error instanceof RpcError)) throw error;
      }
      const isEnough = seen && (seen.isConfirmed || !needsConfirmation);
      const patienceMs = seen || transaction ? timeoutMs : Math.min(timeoutMs, UNSEEN_TIMEOUT_MS);
      if (isEnough || signal?.aborted || performance.now() - askedAt >= patienceMs) return seen;
      await sleep(pollMs, undefined, { signal }).catch(() => {});
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#nodes.map((node) => node.close()));
  }

  /** Asks one node after the other until one gives an answer that is enough; else any answer, or what failed. */
  async #first<T>(ask: (node: ChainNode) => Promise<T>, isEnough: (answer: T) => boolean = () => true): Promise<T> {
    const answers: PromiseSettledResult<Awaited<T>>[] = [];
    for (const node of this.#nodes) {
      const [answer] = await Promise.allSettled([ask(node)]);
      if (answer.status === 'fulfilled' && isEnough(answer.value)) return answer.value;
      answers.push(answer);
    }
    const values = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
    if (values.length === 0) throw failureOf(answers);
    return values.find((value) => value !== undefined) as T;
  }
}

/** Where it lies in its block is no part of it: a reorganisation may move that. */
const identityOf = ({ payer, nonce, transaction, position }: DatedTransfer): string =>
  nonce ? `${payer} ${nonce}` : `${transaction} ${position}`;

const isTrue = (answer: boolean): boolean => answer;

const isConfirmedPayment = (answer: PromiseSettledResult<ChainFinding>): boolean =>
  answer.status === 'fulfilled' && answer.value.outcome === 'paid' && answer.value.isConfirmed;

/** What the first of the nodes that gave no answer failed with. */
const failureOf = (answers: readonly PromiseSettledResult<unknown>[]): unknown =>
  answers.find((answer) => answer.status === 'rejected')?.reason;
