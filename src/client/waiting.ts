/** Waits; ends with the signal's reason when that aborts. No timer is left behind. */
export function pause(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, milliseconds);
    signal?.addEventListener('abort', stop, { once: true });
  });
}

/** What a promise comes to, unless the signal aborts before: the work goes on for others who wait for it. */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return work;
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

/** Work that is aborted when it takes longer. What it has returned by then, such as a stream, obeys the signal alone. */
export async function withDeadline<T>(
  milliseconds: number,
  signal: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal?.throwIfAborted();
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(new DOMException('It took too long.', 'TimeoutError')), milliseconds);
  // Unlike a listener it leaves nothing behind on a signal that lives longer.
  const either = signal ? AbortSignal.any([signal, late.signal]) : late.signal;
  try {
    // A caller's own fetch may not obey the signal.
    return await unlessAborted(work(either), either);
  } finally {
    clearTimeout(timer);
  }
}

/** How long to wait before asking again: twice as long each time, spread, and no shorter than the service asked for. */
export function delayMs(attempt: number, retryAfterSeconds: number | null): number {
  const own = Math.min(200 * 2 ** (attempt - 1), 5000) * (0.5 + Math.random() / 2);
  return Math.max(own, (retryAfterSeconds ?? 0) * 1000);
}
