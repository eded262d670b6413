import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Answer } from './context.ts';

/**
 * Follows a response without listening to it. A response that waits behind another one on its connection is not closed
 * when that breaks, so the connection is looked at too.
 */
export const answerOn = (socket: Socket, response: ServerResponse): Answer => ({
  isOver: () => response.writableFinished || response.destroyed || socket.destroyed,
  breakOff: () => void socket.destroy(),
});
