import type { Logger } from 'pino';
import type { Chain } from './chain.ts';

const ASK_EVERY_MS = 60_000;

/** Learns in the background whether a node of X402_RPC_URL answers, so that /readyz need not wait for it. */
export class NodeWatch {
  readonly #chain: Chain;
  readonly #log: Logger;
  #timer: NodeJS.Timeout | undefined;
  #isStopped = false;
  #state: 'unknown' | 'ok' | 'unreachable' = 'unknown';

  constructor(chain: Chain, log: Logger) {
    this.#chain = chain;
    this.#log = log;
  }

  get state(): string {
    return this.#state;
  }

  start(): void {
    this.#timer ??= setInterval(() => void this.#ask(), ASK_EVERY_MS).unref();
    void this.#ask();
  }

  stop(): void {
    this.#isStopped = true;
    clearInterval(this.#timer);
  }

  async #ask(): Promise<void> {
    const former = this.#state;
    try {
      await this.#chain.head();
      this.#state = 'ok';
      if (former === 'unreachable') this.#log.info('a node of X402_RPC_URL answers again');
    } catch (err) {
      if (this.#isStopped) return;
      this.#state = 'unreachable';
      if (former === this.#state) return;
      const effect = 'Until one does, direct payments and deposits are not confirmed';
      this.#log.error({ err }, `X402_RPC_URL: no node of the chain answers. Check it and the network. ${effect}`);
    }
  }
}
