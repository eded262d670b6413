import { setTimeout as sleep } from 'node:timers/promises';
import { type ChainFinding, ChainNode } from './chain-node.ts';
import { newestConfirmed } from './confirmations.ts';
import type { Hex } from './envelope.ts';
import type { Asset } from './network.ts';
import type { Address } from './payees.ts';
import { type DatedTransfer, readReceived } from './received-transfers.ts';
import { RpcError } from './rpc.ts';
import type { TransferClaim, TransferProof } from './transfer-proof.ts';

export type { ChainFinding } from './chain-node.ts';
export type { TransferClaim, TransferProof } from './transfer-proof.ts';

/** Addresses of the chain's nodes, at least one. */
export type NodeUrls = readonly [string, ...string[]];

/** A head this old still counts as the present one. */
const HEAD_AGE_MS = 1_000;
const POLL_MS = 100;

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
    return this.#first((node) => node.hasCode(address));
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
    return this.#first((node) => node.isSpent(claim));
  }

  /** The proof within a transaction; undefined when no node knows it yet, it failed, or doesn't hold the transfer. */
  prove(claim: TransferClaim, transaction: Hex): Promise<TransferProof | undefined> {
    return this.#first(
      (node) => node.prove(claim, transaction),
      (proof) => proof !== undefined,
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
    const transfers = new Map(shown.flat().map((each) => [`${each.transaction}:${each.logIndex}`, each]));
    return [...transfers.values()].sort((a, b) => Number(a.block - b.block) || a.logIndex - b.logIndex);
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
   * Waits until the transfer is confirmed (R44); undefined when it is not in time, or the signal says stop. With
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
          if (proof && proof.block <= newestConfirmed(head)) return proof;
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
    const answer = answers.find(({ status }) => status === 'fulfilled');
    if (answer?.status === 'fulfilled') return answer.value;
    throw failureOf(answers);
  }
}

const isConfirmedPayment = (answer: PromiseSettledResult<ChainFinding>): boolean =>
  answer.status === 'fulfilled' && answer.value.outcome === 'paid' && answer.value.isConfirmed;

/** What the first of the nodes that gave no answer failed with. */
const failureOf = (answers: readonly PromiseSettledResult<unknown>[]): unknown =>
  answers.find((answer) => answer.status === 'rejected')?.reason;
