import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

const LINGER_MS = 2_000;

/** The request on a connection of Node's HTTP server whose body has not wholly come. */
export function arriving(socket: Socket): IncomingMessage | undefined {
  const { incoming } = (socket as { parser?: { incoming?: IncomingMessage | null } | null }).parser ?? {};
  return incoming?.complete === false ? incoming : undefined;
}

/**
 * Ends a connection after its last answer. Once that is sent, what still comes is discarded for 2 seconds, or until the
 * client ends the connection too: bytes that nobody reads are answered with a reset, and that overtakes the answer
 * (RFC 9112, 9.6).
 */
export function linger(socket: Socket): void {
  if (socket.writableEnded) return;
  socket.end(() => setTimeout(() => socket.destroy(), LINGER_MS).unref());
  arriving(socket)?.resume();
  socket.resume();
}
