import type { FileBudget } from './file-budget.ts';
import type { KeptSpeech } from './kept-speech.ts';

const EVERY_MS = 60_000;

/**
 * Settles what nobody else will, now and once a minute, until it is stopped; one look ends before the next begins. It
 * keeps no process alive.
 */
export function watchLost(
  budget: Pick<FileBudget, 'concludeLost'>,
  client: Parameters<FileBudget['concludeLost']>[0],
  kept?: Pick<KeptSpeech, 'keep'>,
): () => void {
  let isLooking = false;
  const look = async () => {
    if (isLooking) return;
    isLooking = true;
    // What can't be told now is told the next time.
    await budget.concludeLost(client, kept).catch(() => {});
    isLooking = false;
  };
  void look();
  const timer = setInterval(look, EVERY_MS).unref();
  return () => clearInterval(timer);
}
