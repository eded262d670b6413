import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import { within } from '../lib/within.ts';
import { type PausableFlow, pausedFlows } from './pauses.ts';

const READ_EVERY_MS = 1_000;
const STOP_TIMEOUT_MS = 1_000;

/** Paused flows, read every second. While the database is down the last result counts; at first nothing is paused. */
export class KnownPauses {
  readonly #db: Database;
  readonly #log: Logger;
  #paused: ReadonlySet<string> = new Set();
  #reading: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isDatabaseUnavailable = false;

  constructor(db: Database, log: Logger) {
    this.#db = db;
    this.#log = log;
  }

  has(flow: PausableFlow): boolean {
    return this.#paused.has(flow);
  }

  get count(): number {
    return this.#paused.size;
  }

  start(): void {
    this.#timer ??= setInterval(() => void this.read(), READ_EVERY_MS).unref();
  }

  /** Reads now, or joins a read that is running. Never throws. */
  read(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    if (this.#reading) await within(STOP_TIMEOUT_MS, this.#reading);
  }

  async #read(): Promise<void> {
    try {
      const paused = await pausedFlows(this.#db);
      this.#isDatabaseUnavailable = false;
      if (paused.length === this.#paused.size && paused.every((flow) => this.#paused.has(flow))) return;
      this.#paused = new Set(paused);
      this.#log.warn({ paused }, 'the paused flows changed');
    } catch (err) {
      if (!this.#isDatabaseUnavailable)
        this.#log.warn({ err }, 'failed to read which flows are paused; the last known list stays in use');
      this.#isDatabaseUnavailable = true;
    }
  }
}
