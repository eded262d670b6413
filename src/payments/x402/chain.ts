import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import type { Asset } from '../../config/network.ts';
import type { Address } from '../../config/payees.ts';
import type { NodeUrls } from '../../config/x402-settings.ts';
import type { OutsideCalls } from '../../observability/outside.ts';
import { type ChainFinding, ChainNode, type PaidFinding } from './chain-node.ts';
import type { Hex } from './envelope.ts';
import { RpcError } from './rpc.ts';
import { newestConfirmed, type ReceivedTransfer, type TransferClaim } from './transfer-proof.ts';

export interface DatedTransfer extends ReceivedTransfer {
  readonly at: Date;
}

const FIRST_STEP = 1_024n;

/** Transfers to the payees that one node shows, up to its newest confirmed block (R44). */
async function readReceived(node: ChainNode, payees: readonly Address[], since: Date): Promise<DatedTransfer[]> {
  const last = newestConfirmed(await node.head());
  const received: ReceivedTransfer[] = [];
  for (let from = await firstBlockSince(node, BigInt(Math.floor(since.getTime() / 1000)), last); from <= last; ) {
    const read = await node.received(payees, from, last);
    received.push(...read.received);
    from = read.to + 1n;
  }
  const blocksByNumber = new Map<bigint, Awaited<ReturnType<ChainNode['block']>>>();
  const dated: DatedTransfer[] = [];
  for (const transfer of received) {
    const block = blocksByNumber.get(transfer.block) ?? (await node.block(transfer.block));
    blocksByNumber.set(transfer.block, block);
    if (transfer.block > last || transfer.blockHash !== block.hash) {
      throw new RpcError("The chain's node returned blocks that do not match. Try again later.");
    }
    dated.push({ ...transfer, at: new Date(Number(block.timestamp) * 1000) });
  }
  return dated;
}

/** The first block that is not older than `since` (Unix seconds); `last + 1` if all are older. */
async function firstBlockSince(node: ChainNode, since: bigint, last: bigint): Promise<bigint> {
  let later = last + 1n;
  let older = -1n;
  for (let step = FIRST_STEP; later > 0n && older < 0n; step *= 2n) {
    const at = later > step ? later - step : 0n;
    if ((await node.block(at)).timestamp < since) older = at;
    else later = at;
  }
  while (later - older > 1n) {
    const middle = (older + later) / 2n;
    if ((await node.block(middle)).timestamp < since) older = middle;
    else later = middle;
  }
  return later;
}

export type { ChainFinding, PaidFinding } from './chain-node.ts';
export type { TransferClaim, TransferProof } from './transfer-proof.ts';

interface AwaitedTransfer {
  readonly claim: TransferClaim;
  readonly headBlock: bigint;
  readonly transaction: Hex | undefined;
  /** Whether to wait until the transfer can be credited (R44); otherwise inclusion is enough. */
  readonly needsConfirmation: boolean;
}

const HEAD_AGE_MS = 1_000;
/** Interval of look-ups of a named transaction until inclusion, and of all other queries. */
const POLL_MS = 100;
const SLOW_POLL_MS = 1_000;
const UNSEEN_TIMEOUT_MS = 5_000;

/** Reads from the chain through one or more nodes. Throws RpcError if no node answers. */
export class Chain {
  readonly #nodes: readonly ChainNode[];
  #head: { at: number; block: Promise<bigint> } | undefined;

  /** @param log gets a line when a node allows the logs of few blocks at once */
  constructor(urls: NodeUrls, asset: Asset, log?: FastifyBaseLogger, calls?: OutsideCalls) {
    this.#nodes = urls.map((url, index) => {
      let isTold = false;
      const onNarrowRange = (blocks: bigint) => {
        const node = `${index + 1} of ${urls.length}`;
        if (!isTold) {
          log?.warn(
            { node, blocks: Number(blocks) },
            'a chain node returned logs only for a smaller range of blocks, so reading takes longer. No action is needed',
          );
        }
        isTold = true;
      };
      return new ChainNode(url, asset, onNarrowRange, calls);
    });
  }

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

  async newestBlockAt(): Promise<Date> {
    const { timestamp } = await this.#first((node) => node.block('latest'));
    return new Date(Number(timestamp) * 1000);
  }

  balanceOf(address: Address): Promise<bigint> {
    return this.#first((node) => node.balanceOf(address));
  }

  /** Whether the token's EIP-712 domain is the configured one, by any node. */
  hasConfiguredDomain(): Promise<boolean> {
    return this.#first((node) => node.hasConfiguredDomain(), isTrue);
  }

  /** True for a contract, and for a key that delegates to one (EIP-7702). */
  hasCode(address: Address): Promise<boolean> {
    return this.#first((node) => node.hasCode(address), isTrue);
  }

  /**
   * Paid if one node proves it, unused if all say so, otherwise open.
   * @param headBlock head before it could be used
   * @param transaction the one that is said to use it
   */
  async find(claim: TransferClaim, headBlock: bigint, transaction?: string | null): Promise<ChainFinding> {
    const search = { headBlock, transaction: transaction as Hex | undefined, isAlone: this.#nodes.length === 1 };
    const ask = (nodes: readonly ChainNode[]) => Promise.allSettled(nodes.map((node) => node.find(claim, search)));
    const answers = await ask(this.#nodes.slice(0, 1));
    if (!answers.some(isConfirmedPayment)) answers.push(...(await ask(this.#nodes.slice(1))));
    const findings = valuesOf(answers);
    const proofs = findings.filter((finding) => finding.outcome === 'paid');
    const paid = proofs.find(({ isConfirmed }) => isConfirmed) ?? proofs[0];
    if (paid) return paid;
    const isUnused = findings.length === answers.length && findings.every(({ outcome }) => outcome === 'unused');
    return { outcome: isUnused ? 'unused' : 'open' };
  }

  isSpent(claim: TransferClaim): Promise<boolean> {
    return this.#first((node) => node.isSpent(claim), isTrue);
  }

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

  async received(payees: readonly Address[], since: Date): Promise<DatedTransfer[]> {
    const answers = await Promise.allSettled(this.#nodes.map((node) => readReceived(node, payees, since)));
    const transfers = new Map(valuesOf(answers).flatMap((shown) => shown.map((each) => [identityOf(each), each])));
    return [...transfers.values()].sort((a, b) => Number(a.block - b.block) || a.logIndex - b.logIndex);
  }

  /** Looks a transfer up, or searches it, until the timeout. Returns the last finding, which may be unconfirmed. */
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
      const longestMs = seen || transaction ? timeoutMs : Math.min(timeoutMs, UNSEEN_TIMEOUT_MS);
      if (isEnough || signal?.aborted || performance.now() - askedAt >= longestMs) return seen;
      await sleep(pollMs, undefined, { signal }).catch(() => {});
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#nodes.map((node) => node.close()));
  }

  /** Asks the nodes in turn until an answer is enough; otherwise returns any answer, or throws a node's error. */
  async #first<T>(ask: (node: ChainNode) => Promise<T>, isEnough: (answer: T) => boolean = () => true): Promise<T> {
    const answers: PromiseSettledResult<Awaited<T>>[] = [];
    for (const node of this.#nodes) {
      const [answer] = await Promise.allSettled([ask(node)]);
      if (answer.status === 'fulfilled' && isEnough(answer.value)) return answer.value;
      answers.push(answer);
    }
    return valuesOf(answers).find((value) => value !== undefined) as T;
  }
}

/** Without the log index in the block, which a reorganisation may change. */
const identityOf = ({ payer, nonce, transaction, position }: DatedTransfer): string =>
  nonce ? `${payer} ${nonce}` : `${transaction} ${position}`;

const isTrue = (answer: boolean): boolean => answer;

const isConfirmedPayment = (answer: PromiseSettledResult<ChainFinding>): boolean =>
  answer.status === 'fulfilled' && answer.value.outcome === 'paid' && answer.value.isConfirmed;

function valuesOf<T>(answers: readonly PromiseSettledResult<T>[]): T[] {
  const values = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
  if (values.length > 0) return values;
  throw answers.find((answer) => answer.status === 'rejected')?.reason;
}
