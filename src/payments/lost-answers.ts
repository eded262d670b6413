import type { FastifyBaseLogger } from 'fastify';
import type { AudioStore } from '../audio/audio-store.ts';
import type { Database } from '../db/database.ts';
import { retryWhileAway } from '../db/retry-while-away.ts';
import { addLostAnswer, lostAnswerFailed, lostAnswerStored } from '../ledger/lost-answers.ts';
import type { Answer } from '../lib/answer.ts';
import type { RunningWork } from '../lib/running-work.ts';
import { testPoint } from '../lib/test-point.ts';
import type { Metrics } from '../observability/metrics.ts';
import { FollowedAnswer } from './followed-answer.ts';

/** What is kept in memory of answers that were handed over or wait for the store. */
const MAX_BYTES = 64 * 1024 * 1024;
/** Answers that are stored at a time: a bucket takes long for each. */
const STORED_AT_ONCE = 4;

export interface LostAnswersParts {
  readonly db: Database;
  readonly store: AudioStore;
  readonly work: RunningWork;
  readonly metrics: Metrics;
  readonly log: FastifyBaseLogger;
  /** How long a statement is repeated while the database is away. */
  readonly patienceMs: number;
  readonly maxBytes?: number;
}

/** Where the audio of an answer is kept. */
export const lostAnswerKey = (id: string): string => `prepaid/${id}`;

/**
 * Keeps the audio of prepaid requests that were charged and did not arrive (R60):
 *
 *     charged -- the caller is gone before the last byte was handed over --> lost
 *     charged -- the last byte was handed over --> handed over
 *     handed over -- the connection ends with an error --> lost
 *     handed over -- the next request, an end without an error, silence, too many bytes --> arrived, and forgotten
 *     lost -- noted, stored, and marked as stored --> offered for 10 minutes (ledger/lost-answers.ts)
 *
 * What can't be stored stays charged (R55): that the caller has left is not the service's failure.
 */
export class LostAnswers {
  readonly #parts: LostAnswersParts;
  /** Handed over, the oldest first. */
  readonly #handedOver = new Map<bigint, Buffer>();
  readonly #storing = new Set<bigint>();
  readonly #turns: (() => void)[] = [];
  #running = 0;
  #bytes = 0;

  constructor(parts: LostAnswersParts) {
    this.#parts = parts;
  }

  /** The same answer, which is over only once its audio is handed over or kept. */
  follow(answer: Answer): FollowedAnswer {
    return new FollowedAnswer(answer, this);
  }

  /** Takes note of an answer that was handed over to the connection, until it has arrived. */
  handedOver(holdId: bigint, audio: Buffer, answer: Answer): void {
    this.#handedOver.set(holdId, audio);
    this.#bytes += audio.length;
    this.#makeRoom(0);
    answer.onceArrived((hasArrived) => {
      const handedOver = this.#forget(holdId);
      if (handedOver && !hasArrived) this.lost(holdId, handedOver);
    });
  }

  /** Keeps the audio of an answer that did not arrive, or logs why not. */
  lost(holdId: bigint, audio: Buffer): Promise<void> {
    this.#storing.add(holdId);
    return this.#parts.work.add(this.#store(holdId, audio)).finally(() => this.#storing.delete(holdId));
  }

  /** Whether it is still open if an answer that was charged has arrived: it is followed, or being stored. */
  isFollowed(holdId: bigint): boolean {
    return this.#handedOver.has(holdId) || this.#storing.has(holdId);
  }

  async #store(holdId: bigint, audio: Buffer): Promise<void> {
    const { db, store, metrics, log, patienceMs } = this.#parts;
    if (!this.#makeRoom(audio.length)) {
      metrics.answerLost('not_kept');
      log.warn('too many answers were lost at once: the audio of one is not kept');
      return;
    }
    this.#bytes += audio.length;
    let id: string | undefined;
    let end = () => {};
    try {
      testPoint('answer lost');
      // Before its turn: other processes learn by it that it is being stored.
      const noted = await retryWhileAway(patienceMs, () => addLostAnswer(db, holdId, audio.length));
      id = noted;
      testPoint('lost answer noted');
      end = await this.#turn();
      await store.put(lostAnswerKey(noted), audio, 'audio/mpeg');
      testPoint('lost answer in the store');
      await retryWhileAway(patienceMs, () => lostAnswerStored(db, noted));
      testPoint('lost answer offered');
      metrics.answerLost('kept');
    } catch (error) {
      testPoint('lost answer not kept');
      metrics.answerLost('not_kept');
      log.error({ err: error }, 'the audio of an answer that did not arrive can not be kept');
      if (id !== undefined) await lostAnswerFailed(db, id).catch(() => {});
    } finally {
      this.#bytes -= audio.length;
      end();
    }
  }

  /** Waits until few enough are being stored. Tells how to end it. */
  async #turn(): Promise<() => void> {
    if (this.#running === STORED_AT_ONCE) await new Promise<void>((begin) => this.#turns.push(begin));
    else this.#running += 1;
    return () => {
      const next = this.#turns.shift();
      if (next) next();
      else this.#running -= 1;
    };
  }

  /** Takes the oldest that were handed over as arrived, until there is room for so many bytes more; false without. */
  #makeRoom(bytes: number): boolean {
    const { maxBytes = MAX_BYTES } = this.#parts;
    for (const holdId of this.#handedOver.keys()) {
      if (this.#bytes + bytes <= maxBytes) break;
      this.#forget(holdId);
    }
    return this.#bytes + bytes <= maxBytes;
  }

  #forget(holdId: bigint): Buffer | undefined {
    const audio = this.#handedOver.get(holdId);
    if (!audio) return undefined;
    this.#handedOver.delete(holdId);
    this.#bytes -= audio.length;
    return audio;
  }
}
