import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

/** For how long a connection whose last answer was sent is read on, at least. */
export const LINGER_MS = 2_000;

/** The request on a connection of Node's HTTP server whose body has not wholly come. */
export function arriving(socket: Socket): IncomingMessage | undefined {
  const { incoming } = (socket as { parser?: { incoming?: IncomingMessage | null } | null }).parser ?? {};
  return incoming?.complete === false ? incoming : undefined;
}

/**
 * Ends a connection after its last answer. Once that is sent, what still comes is discarded for 2 seconds, or until the
 * client ends the connection too: bytes that nobody reads are answered with a reset, and that overtakes the answer
 * (RFC 9112, 9.6).
 * @param isFollowed whether it is to be known what becomes of the answer: the connection stays as long as it is
 */
export function linger(socket: Socket, isFollowed: () => boolean = () => false): void {
  if (socket.writableEnded) return;
  const close = () => (isFollowed() ? closeLater() : socket.destroy());
  const closeLater = () => setTimeout(close, LINGER_MS).unref();
  socket.end(closeLater);
  arriving(socket)?.resume();
  socket.resume();
}
