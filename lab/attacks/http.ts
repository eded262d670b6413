import { type IncomingMessage, type OutgoingHttpHeaders, request as send } from 'node:http';

export interface Ask {
  readonly method: string;
  readonly path: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Buffer;
}

/** `broken`: the connection ended before the response was complete. `hung`: no complete response within the timeout. */
export type Answer =
  | {
      readonly outcome: 'answered';
      readonly status: number;
      readonly headers: IncomingMessage['headers'];
      readonly bytes: Buffer;
    }
  | { readonly outcome: 'broken' }
  | { readonly outcome: 'hung' };

/** When the client disconnects: after half of the request, all of it, half of the response, or all but one byte. */
export type Leaving = 'half sent' | 'sent' | 'half' | 'last byte';

/** Sends a request over a new connection. @param boundMs timeout after which it counts as hung */
export function ask(origin: string, what: Ask, boundMs: number, leaving?: Leaving): Promise<Answer> {
  const { method, path, headers = {}, body = '' } = what;
  const { hostname, port } = new URL(origin);
  const length = Buffer.byteLength(body);
  const given = length > 0 || method === 'POST' ? { 'content-length': length } : {};
  return new Promise((resolve) => {
    const outgoing = send({ hostname, port, method, path, agent: false, headers: { ...given, ...headers } });
    const end = (answer: Answer) => {
      clearTimeout(timer);
      resolve(answer);
      outgoing.destroy();
    };
    const timer = setTimeout(() => end({ outcome: 'hung' }), boundMs);
    outgoing.on('error', () => end({ outcome: 'broken' }));
    outgoing.on('close', () => end({ outcome: 'broken' }));
    outgoing.on('response', (incoming) => read(incoming, leaving, end));
    if (leaving === 'half sent') {
      outgoing.write(body.slice(0, length / 2), () => end({ outcome: 'broken' }));
      return;
    }
    outgoing.end(body, () => {
      // The server gets 20 ms to start work on the complete request.
      if (leaving === 'sent') setTimeout(() => end({ outcome: 'broken' }), 20);
    });
  });
}

function read(incoming: IncomingMessage, leaving: Leaving | undefined, end: (answer: Answer) => void): void {
  const chunks: Buffer[] = [];
  let length = 0;
  const expected = Number(incoming.headers['content-length'] ?? 0);
  const enough = leaving === 'half' ? expected / 2 : leaving === 'last byte' ? expected - 1 : Number.POSITIVE_INFINITY;
  incoming.on('error', () => end({ outcome: 'broken' }));
  incoming.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    length += chunk.length;
    if (incoming.statusCode === 200 && length >= enough) end({ outcome: 'broken' });
  });
  incoming.on('end', () => {
    if (!incoming.complete) return end({ outcome: 'broken' });
    end({
      outcome: 'answered',
      status: incoming.statusCode as number,
      headers: incoming.headers,
      bytes: Buffer.concat(chunks),
    });
  });
}
