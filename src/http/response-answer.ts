import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Answer } from '../lib/answer.ts';
import { Connection } from './connection.ts';

/**
 * Follows a response. One that waits behind another on its connection is closed a moment after that breaks, so the
 * connection is looked at too.
 */
export class ResponseAnswer implements Answer {
  readonly #socket: Socket;
  readonly #response: ServerResponse;
  readonly #onBreakOff: () => void;

  constructor(socket: Socket, response: ServerResponse, onBreakOff: () => void) {
    this.#socket = socket;
    this.#response = response;
    this.#onBreakOff = onBreakOff;
  }

  isOver(): boolean {
    return this.#response.writableFinished || this.#response.destroyed || this.#socket.destroyed;
  }

  onceOver(listener: () => void): void {
    this.#response.once('close', listener);
  }

  /** Node calls an answer finished, too, whose last write has failed: its connection is destroyed then. */
  wasHandedOver(): boolean {
    return this.#response.writableFinished && !this.#socket.destroyed;
  }

  onceArrived(listener: (hasArrived: boolean) => void): void {
    const connection = Connection.of(this.#socket);
    if (connection) connection.onceArrived(listener);
    else listener(true);
  }

  sendOnlyWhile(maySend: () => boolean): void {
    const lift = Connection.of(this.#socket)?.sendOnlyWhile(maySend);
    if (lift) this.#response.once('close', lift);
  }

  breakOff(): void {
    this.#onBreakOff();
    this.#socket.destroy();
  }
}
