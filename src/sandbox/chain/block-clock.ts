import { CONFIRMATIONS } from '../../payments/x402/transfer-proof.ts';
import type { ChainClient } from './chain-client.ts';

const BLOCKS_ON_TOP = BigInt(CONFIRMATIONS) + 1n;
const IDLE_SECONDS = 15;

/**
 * Mines an empty block every `blockTime` seconds until the newest other block is confirmed, then only every 15 s.
 * @param onBlocks called after new blocks, also those of transactions
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
    // The chain is gone or overloaded. Its next user gets the error.
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
