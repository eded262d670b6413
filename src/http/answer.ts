import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Answer } from './context.ts';

/**
 * Follows a response. One that waits behind another on its connection is not closed when that breaks, so the connection
 * is looked at too.
 */
export class ResponseAnswer implements Answer {
  readonly #socket: Socket;
  readonly #response: ServerResponse;

  constructor(socket: Socket, response: ServerResponse) {
    this.#socket = socket;
    this.#response = response;
  }

  isOver(): boolean {
    return this.#response.writableFinished || this.#response.destroyed || this.#socket.destroyed;
  }

  onceOver(listener: () => void): void {
    this.#response.once('close', listener);
  }

  breakOff(): void {
    this.#socket.destroy();
  }
}
