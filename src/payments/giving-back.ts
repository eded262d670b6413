import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import type { Hold } from '../ledger/hold.ts';
import { type GivenBack, giveBack } from '../ledger/reversal.ts';
import { within } from '../lib/within.ts';

const FIRST_RETRY_MS = 250;
const LONGEST_RETRY_MS = 5_000;
/** How long stopping waits; what is not known by then is left to the other processes. */
const STOP_PATIENCE_MS = 5_000;

interface Doubt {
  readonly hold: Hold;
  readonly known: (outcome: GivenBack) => void;
}

/**
 * Gives back what callers were told has failed, while it isn't known whether it was captured: goes on until that is
 * known, however long the database is away. One at a time, so that an outage's doubts don't crowd out new requests.
 */
export class GivingBack {
  readonly #db: Database;
  readonly #log: FastifyBaseLogger;
  readonly #doubts: Doubt[] = [];
  readonly #stopping = new AbortController();
  #loop: Promise<void> | undefined;

  constructor(db: Database, log: FastifyBaseLogger) {
    this.#db = db;
    this.#log = log;
  }

  /** How many holds may have been charged, for callers who were told that they failed. */
  get count(): number {
    return this.#doubts.length;
  }

  /** @param known told what became of it */
  add(hold: Hold, known: (outcome: GivenBack) => void): void {
    this.#doubts.push({ hold, known });
    this.#loop ??= this.#run();
  }

  /** Waits some seconds at most for what is still unknown. */
  async stop(): Promise<void> {
    if (this.#loop) await within(STOP_PATIENCE_MS, this.#loop);
    this.#stopping.abort();
    if (this.count > 0) this.#log.warn({ count: this.count }, 'captures of unknown end are left to other processes');
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    let retryMs = FIRST_RETRY_MS;
    while (this.#doubts.length > 0 && !signal.aborted) {
      const doubt = this.#doubts[0] as Doubt;
      try {
        const outcome = await giveBack(this.#db, doubt.hold);
        this.#doubts.shift();
        doubt.known(outcome);
        this.#log.warn({ outcome }, 'a capture of unknown end was given back');
        retryMs = FIRST_RETRY_MS;
      } catch (error) {
        if (retryMs === FIRST_RETRY_MS) this.#log.warn({ err: error }, 'the end of a capture is not known; asking on');
        // Another one may be luckier: the failure need not be the database's absence.
        this.#doubts.push(this.#doubts.shift() as Doubt);
        await sleep(retryMs, undefined, { signal }).catch(() => {});
        retryMs = Math.min(retryMs * 2, LONGEST_RETRY_MS);
      }
    }
    this.#loop = undefined;
  }
}
