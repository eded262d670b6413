import { createServer, type Socket } from 'node:net';

export interface RawRequest {
  readonly path: string;
  readonly body: Buffer;
}

/** Writes a complete response, now or later. */
export type RawHandler = (request: RawRequest, socket: Socket) => void;

const HEAD_END = Buffer.from('\r\n\r\n');

/**
 * An HTTP server for prebuilt responses. It needs a third of node:http's CPU, which the targets share.
 * Accepts requests with `content-length` or without a body, and closes the connection on any other.
 */
export function listenRaw(handle: RawHandler): Promise<number> {
  const server = createServer({ noDelay: true }, (socket) => {
    let waiting: Buffer = Buffer.alloc(0);
    socket.on('error', () => socket.destroy());
    socket.on('data', (chunk: Buffer) => {
      waiting = waiting.length === 0 ? chunk : Buffer.concat([waiting, chunk]);
      for (;;) {
        const headEnd = waiting.indexOf(HEAD_END);
        if (headEnd === -1) return;
        const head = waiting.toString('latin1', 0, headEnd);
        if (/\r\n(?:transfer-encoding|expect):/i.test(head)) return socket.destroy();
        const start = headEnd + HEAD_END.length;
        const end = start + Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0);
        if (waiting.length < end) return;
        const body = waiting.subarray(start, end);
        waiting = waiting.subarray(end);
        handle({ path: head.slice(head.indexOf(' ') + 1, head.indexOf(' HTTP/')), body }, socket);
      }
    });
  });
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as { port: number }).port));
  });
}

export const answer = (contentType: string, body: Buffer | string): Buffer =>
  Buffer.concat([
    Buffer.from(
      `HTTP/1.1 200 OK\r\ncontent-type: ${contentType}\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: keep-alive\r\n\r\n`,
    ),
    Buffer.from(body),
  ]);
