import { type ChainNode, RANGE_BLOCKS } from './chain-node.ts';
import { newestConfirmed } from './confirmations.ts';
import type { Address } from './payees.ts';
import { RpcError } from './rpc.ts';
import type { ReceivedTransfer } from './transfer-proof.ts';

/** A transfer with the time of its block. */
export interface DatedTransfer extends ReceivedTransfer {
  readonly at: Date;
}

/** The first step back from the newest block in the search for a time; each further one is twice as wide. */
const FIRST_STEP = 1_024n;

/**
 * The transfers to these payees that one node shows, from the first block since then to the newest confirmed one (R44).
 * The logs are asked for in ranges of blocks. Nodes bound these by blocks, by answers, or by time, and say so in words of
 * their own: a range that fails is halved, down to one block, and wider ones are not tried again.
 * @param payees in lower case
 * @throws RpcError when the node does not answer for a single block
 */
export async function readReceived(node: ChainNode, payees: readonly Address[], since: Date): Promise<DatedTransfer[]> {
  const last = newestConfirmed(await node.head());
  const received: ReceivedTransfer[] = [];
  let blocks = RANGE_BLOCKS;
  for (let from = await firstBlockSince(node, BigInt(Math.floor(since.getTime() / 1000)), last); from <= last; ) {
    const to = from + blocks - 1n < last ? from + blocks - 1n : last;
    try {
      received.push(...(await node.received(payees, from, to)));
      from = to + 1n;
    } catch (error) {
      if (!(error instanceof RpcError) || to === from) throw error;
      blocks = (to - from + 1n) / 2n;
    }
  }
  const blocksByNumber = new Map<bigint, Awaited<ReturnType<ChainNode['block']>>>();
  const dated: DatedTransfer[] = [];
  for (const transfer of received) {
    const block = blocksByNumber.get(transfer.block) ?? (await node.block(transfer.block));
    blocksByNumber.set(transfer.block, block);
    if (transfer.block > last || transfer.blockHash !== block.hash) {
      throw new RpcError('The chain was reorganised while it was read.');
    }
    dated.push({ ...transfer, at: new Date(Number(block.timestamp) * 1000) });
  }
  return dated;
}

/** The first block that is not older than that; the one after the last where all are older. @param since Unix seconds */
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
