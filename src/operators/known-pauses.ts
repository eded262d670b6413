import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import { within } from '../lib/within.ts';
import { type PausableFlow, pausedFlows } from './pauses.ts';

/** How old what a process knows may be, while the database answers. */
const READ_EVERY_MS = 1_000;
const STOP_PATIENCE_MS = 1_000;

/**
 * What operators have paused, as this process knows it: it asks the database every second. While the database is away
 * the last answer stands; before the first one nothing is paused.
 */
export class KnownPauses {
  readonly #db: Database;
  readonly #log: Logger;
  #paused: ReadonlySet<string> = new Set();
  #reading: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isAway = false;

  constructor(db: Database, log: Logger) {
    this.#db = db;
    this.#log = log;
  }

  has(flow: PausableFlow): boolean {
    return this.#paused.has(flow);
  }

  /** How many flows are paused. */
  get count(): number {
    return this.#paused.size;
  }

  /** Asks the database from now on, until it is stopped. */
  start(): void {
    this.#timer ??= setInterval(() => void this.read(), READ_EVERY_MS).unref();
  }

  /** Asks the database now, or waits for the answer that is on its way. Never throws. */
  read(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    if (this.#reading) await within(STOP_PATIENCE_MS, this.#reading);
  }

  async #read(): Promise<void> {
    try {
      const paused = await pausedFlows(this.#db);
      this.#isAway = false;
      if (paused.length === this.#paused.size && paused.every((flow) => this.#paused.has(flow))) return;
      this.#paused = new Set(paused);
      this.#log.warn({ paused }, 'operators have changed what is paused');
    } catch (err) {
      if (!this.#isAway) this.#log.warn({ err }, 'what is paused could not be read; what was known last stands');
      this.#isAway = true;
    }
  }
}
