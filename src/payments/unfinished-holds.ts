import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import {
  type Checkpoint,
  registerProcess,
  retireProcess,
  SURELY_ALIVE_MS,
  writeCheckpoint,
} from '../ledger/gateway-process.ts';
import type { Hold } from '../ledger/hold.ts';
import type { Answer } from '../lib/answer.ts';
import { testPoint } from '../lib/test-point.ts';
import { within } from '../lib/within.ts';

/** How often a process tells what it has finished: what it delivered since is not known when it dies. */
const CHECKPOINT_EVERY_MS = 1_000;
/** How often it does when it has nothing to tell but that it lives. */
const IDLE_CHECKPOINT_EVERY_MS = 5_000;
const STOP_PATIENCE_MS = 5_000;

/** What the database knows this process as. */
interface Registration {
  readonly id: number;
}

interface OpenHold {
  readonly registration: Registration;
  /** Undefined once it is over: a whole request hangs on it, and a Map may keep what was deleted for a while. */
  answer: Answer | undefined;
  readonly giveBack: () => void;
  /** The answer is on its way. */
  isCaptured: boolean;
}

/** What became of a hold that was to be placed: it is there, or it was refused. */
export interface Placed {
  readonly outcome: string;
  readonly hold?: Hold;
}

/** A hold that is being placed: its id will be greater than any that was known when that began. */
interface Placement {
  readonly knownBefore: bigint;
}

/**
 * Knows which holds of this process are finished, and tells the database about once a second, in one statement for all
 * of them. When the process dies, the reconcilers give back what it has charged and not delivered by then.
 */
export class UnfinishedHolds {
  readonly #db: Database;
  readonly #log: FastifyBaseLogger;
  readonly #open = new Map<bigint, OpenHold>();
  readonly #placements = new Set<Placement>();
  /** Those that the latest checkpoint could not cover by a bound. */
  #finished: bigint[] = [];
  #highestId = 0n;
  #registration: Registration | undefined;
  #registering: Promise<Registration> | undefined;
  /** When the latest heartbeat that arrived was sent; monotonic. */
  #beatAt = Number.NEGATIVE_INFINITY;
  /** Holds were placed, or have ended, since the latest checkpoint. */
  #hasNews = false;
  readonly #stopped = new AbortController();
  #loop: Promise<void> | undefined;

  constructor(db: Database, log: FastifyBaseLogger) {
    this.#db = db;
    this.#log = log;
  }

  /**
   * Places a hold in the name of this process, and follows it until it is finished.
   * @param place gets the process's id
   * @param giveBack called when the answer had to be broken off after the capture
   */
  async follow<R extends Placed>(
    answer: Answer,
    place: (processId: number) => Promise<R>,
    giveBack: (hold: Hold) => void,
  ): Promise<R> {
    const registration = this.#isSurelyAlive() ? (this.#registration as Registration) : await this.#register();
    const placement = { knownBefore: this.#highestId };
    this.#placements.add(placement);
    this.#hasNews = true;
    try {
      const result = await place(registration.id);
      const { hold } = result;
      if (hold) {
        if (hold.id > this.#highestId) this.#highestId = hold.id;
        this.#open.set(hold.id, { registration, answer, giveBack: () => giveBack(hold), isCaptured: false });
      }
      return result;
    } finally {
      this.#placements.delete(placement);
    }
  }

  /**
   * The hold is captured, and is finished with its answer. False when this process may have been declared dead since it
   * was placed: others may reverse the charge, and nothing may be delivered.
   */
  captured(holdId: bigint): boolean {
    const hold = this.#open.get(holdId);
    if (!hold?.answer || hold.registration !== this.#registration || !this.#isSurelyAlive()) return false;
    hold.isCaptured = true;
    hold.answer.onceOver(() => hold.isCaptured && this.ended(holdId));
    hold.answer.sendOnlyWhile(() => this.#maySend(hold));
    return true;
  }

  /** The process may have stood still since it looked last: then its reconcilers may have given the charge back. */
  #maySend(hold: OpenHold): boolean {
    if (hold.registration === this.#registration && this.#isSurelyAlive()) return true;
    this.#breakOffHold(hold);
    return false;
  }

  /**
   * Whether the answer of a charged hold, or its giving back, is under way in this process; undefined for a hold of
   * another one, or of a time before this one was taken for dead.
   */
  isOpen(processId: number | null, holdId: bigint): boolean | undefined {
    return processId !== null && this.#registration?.id === processId ? this.#open.has(holdId) : undefined;
  }

  /** Nothing is under way for the hold any more: it was delivered, void or given back. */
  ended(holdId: bigint): void {
    const hold = this.#open.get(holdId);
    if (!hold) return;
    hold.answer = undefined;
    this.#open.delete(holdId);
    this.#finished.push(holdId);
    this.#hasNews = true;
  }

  /** Tells the database the last state, within seconds; the process is forgotten when nothing of it is unfinished. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    if (this.#loop)
      await within(
        STOP_PATIENCE_MS,
        this.#loop.then(() => this.#signOff()),
      );
  }

  async #signOff(): Promise<void> {
    if (!this.#registration) return;
    try {
      await this.#beat(this.#registration);
      testPoint('process signed off');
      if (this.#registration && this.#open.size === 0) await retireProcess(this.#db, this.#registration.id);
    } catch (error) {
      this.#log.warn({ err: error }, 'what was delivered last could not be told; it may be given back');
    }
  }

  #isSurelyAlive(): boolean {
    return this.#registration !== undefined && performance.now() - this.#beatAt < SURELY_ALIVE_MS;
  }

  /** A process that was silent for long tells that it lives before it places anything, or comes back under a new id. */
  async #register(): Promise<Registration> {
    this.#registering ??= this.#enroll().finally(() => {
      this.#registering = undefined;
    });
    return this.#registering;
  }

  async #enroll(): Promise<Registration> {
    if (this.#registration) await this.#beat(this.#registration);
    if (this.#registration) return this.#registration;
    const sentAt = performance.now();
    const { id, firstHoldId } = await registerProcess(this.#db);
    testPoint('process registered');
    if (firstHoldId - 1n > this.#highestId) this.#highestId = firstHoldId - 1n;
    this.#beatAt = sentAt;
    this.#registration = { id };
    this.#loop ??= this.#live();
    return this.#registration;
  }

  async #live(): Promise<void> {
    const { signal } = this.#stopped;
    let isAway = false;
    while (!signal.aborted) {
      await sleep(CHECKPOINT_EVERY_MS, undefined, { signal }).catch(() => {});
      const registration = this.#registration;
      const isIdle = !this.#hasNews && this.#open.size === 0;
      if (signal.aborted || !registration) continue;
      if (isIdle && performance.now() - this.#beatAt < IDLE_CHECKPOINT_EVERY_MS) continue;
      // Bytes that it had handed to the operating system's queue before it stood still would go on while the beat is asked.
      if (!this.#isSurelyAlive()) this.#breakOff(registration);
      try {
        testPoint('delivery untold');
        await this.#beat(registration);
        isAway = false;
      } catch (error) {
        if (!isAway) this.#log.warn({ err: error }, 'what is delivered can not be told now');
        isAway = true;
        this.#hasNews = true;
        if (!this.#isSurelyAlive()) this.#breakOff(registration);
      }
    }
  }

  async #beat(registration: Registration): Promise<void> {
    const sentAt = performance.now();
    const checkpoint = this.#checkpoint();
    if (await writeCheckpoint(this.#db, registration.id, checkpoint)) {
      this.#beatAt = Math.max(this.#beatAt, sentAt);
      return;
    }
    if (this.#registration === registration) this.#registration = undefined;
    this.#log.warn('this process was silent for long and counts as dead; what it has not delivered is given back');
    this.#breakOff(registration);
  }

  #checkpoint(): Checkpoint {
    for (const [id, { isCaptured, answer }] of this.#open) {
      if (isCaptured && answer?.isOver()) this.ended(id);
    }
    this.#hasNews = this.#placements.size > 0;
    let known = this.#highestId;
    for (const { knownBefore } of this.#placements) if (knownBefore < known) known = knownBefore;
    this.#finished = this.#finished.filter((id) => id > known);
    return { finishedBelow: known + 1n, unfinished: [...this.#open.keys()], finished: this.#finished };
  }

  /** What others may reverse by now is not delivered any further. What is not captured yet finds out when it is. */
  #breakOff(registration: Registration): void {
    for (const hold of this.#open.values()) {
      if (hold.registration === registration) this.#breakOffHold(hold);
    }
  }

  #breakOffHold(hold: OpenHold): void {
    if (!hold.isCaptured || !hold.answer || hold.answer.isOver()) return;
    hold.isCaptured = false;
    hold.answer.breakOff();
    hold.giveBack();
  }
}
