import { CONFIRMATIONS } from '../../x402/confirmations.ts';
import type { ChainClient } from './chain-client.ts';

/** Blocks on top of a transaction that somebody may wait for: those that confirm it (R44), and one to spare. */
const BLOCKS_ON_TOP = BigInt(CONFIRMATIONS) + 1n;
/** Seconds between the blocks of a chain on which nothing happens. They all stay in memory and in the state file. */
const IDLE_SECONDS = 15;

/**
 * Mines the empty blocks that a chain needs besides those of its transactions: every `blockTime` seconds until the last
 * block that somebody else has caused is confirmed, then only now and then, so that time moves on. `onBlocks` is called
 * after new blocks, whoever caused them.
 */
export function startBlockClock(
  client: ChainClient,
  blockTime: number,
  onBlocks: () => Promise<void>,
): { stop(): Promise<void> } {
  let confirmedAt = 0n;
  let seen: bigint | undefined;
  const tick = async () => {
    const head = await client.getBlock();
    const active = head.number !== seen;
    if (active) confirmedAt = head.number + BLOCKS_ON_TOP;
    const age = Math.floor(Date.now() / 1000) - Number(head.timestamp);
    const due = age >= (head.number < confirmedAt ? blockTime : IDLE_SECONDS);
    if (due) await client.mine({ blocks: 1 });
    seen = head.number + (due ? 1n : 0n);
    if (active || due) await onBlocks();
  };

  let running: Promise<void> | undefined;
  const timer = setInterval(() => {
    // A tick fails when the chain is gone or overloaded: whoever uses it next learns that.
    running ??= tick()
      .catch(() => undefined)
      .finally(() => {
        running = undefined;
      });
  }, blockTime * 1000);
  timer.unref();
  return {
    async stop() {
      clearInterval(timer);
      await running;
    },
  };
}
