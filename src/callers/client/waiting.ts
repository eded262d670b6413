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

/** Rejects if the signal aborts. The work continues for its other callers. */
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

/** Aborts the work after the timeout. A stream that it returned earlier is bound to `signal` only. */
export async function withDeadline<T>(
  milliseconds: number,
  signal: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal?.throwIfAborted();
  const timeout = new AbortController();
  const timer = setTimeout(
    () => timeout.abort(new DOMException('The request timed out.', 'TimeoutError')),
    milliseconds,
  );
  // Unlike a listener it does not leak on a long-lived signal.
  const combined = signal ? AbortSignal.any([signal, timeout.signal]) : timeout.signal;
  try {
    // A custom fetch may ignore the signal.
    return await unlessAborted(work(combined), combined);
  } finally {
    clearTimeout(timer);
  }
}

export function delayMs(attempt: number, retryAfterSeconds: number | null): number {
  const backoffMs = Math.min(200 * 2 ** (attempt - 1), 5000) * (0.5 + Math.random() / 2);
  return Math.max(backoffMs, (retryAfterSeconds ?? 0) * 1000);
}
