/**
 * Runs `save` so that each caller gets one that began after the call; callers that wait at the same time share one.
 */
export function shared(save: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> = Promise.resolve();
  let next: Promise<void> | undefined;
  return () => {
    if (!next) {
      const begin = async () => {
        next = undefined;
        await save();
      };
      next = running.then(begin, begin);
      running = next;
    }
    return next;
  };
}
