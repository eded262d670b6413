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
  let running: Promise<void> | undefined;
  // What can't be told now is told the next time.
  const conclude = () => {
    running ??= budget
      .concludeLost(client, kept)
      .catch(() => {})
      .finally(() => {
        running = undefined;
      });
  };
  conclude();
  const timer = setInterval(conclude, EVERY_MS).unref();
  return () => clearInterval(timer);
}
