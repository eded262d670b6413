import type { RequestHandlerExtra } from '@modelcontextprotocol/sdk/shared/protocol.js';
import type { ServerNotification, ServerRequest } from '@modelcontextprotocol/sdk/types.js';

const EVERY_MS = 1000;

export type Extra = RequestHandlerExtra<ServerRequest, ServerNotification>;

/** Tells a caller who wants to know, once a second, that the work goes on; ends when what it returns is called. */
export function reportProgress({ _meta, sendNotification, signal }: Extra, what: string): () => void {
  const progressToken = _meta?.progressToken;
  if (progressToken === undefined) return () => {};
  let seconds = 0;
  const timer = setInterval(() => {
    seconds += 1;
    const message = `${what}, ${seconds} s`;
    if (signal.aborted) return;
    // Who has left hears nothing more; the call itself ends by its signal.
    sendNotification({ method: 'notifications/progress', params: { progressToken, progress: seconds, message } }).catch(
      () => {},
    );
  }, EVERY_MS);
  return () => clearInterval(timer);
}
