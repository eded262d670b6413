import type { Answer } from '../lib/answer.ts';
import type { LostAnswers } from './lost-answers.ts';

/**
 * The answer to a prepaid request. Once it pays for audio, it is over only when that was handed over, or kept for a caller
 * who was gone: a process that dies before has not delivered it.
 */
export class FollowedAnswer implements Answer {
  readonly #answer: Answer;
  readonly #lostAnswers: LostAnswers;
  #paid: { readonly holdId: bigint; readonly audio: Buffer } | undefined;
  #state: 'open' | 'ending' | 'over' = 'open';
  #isBrokenOff = false;
  readonly #listeners: (() => void)[] = [];

  constructor(answer: Answer, lostAnswers: LostAnswers) {
    this.#answer = answer;
    this.#lostAnswers = lostAnswers;
  }

  /** Its audio was charged, and is handed over from now on. */
  pays(holdId: bigint, audio: Buffer): void {
    this.#paid = { holdId, audio };
    this.#answer.onceOver(() => this.#end());
    this.isOver();
  }

  isOver(): boolean {
    if (this.#answer.isOver()) this.#end();
    return this.#state === 'over';
  }

  onceOver(listener: () => void): void {
    this.#listeners.push(listener);
  }

  wasHandedOver(): boolean {
    return this.#answer.wasHandedOver();
  }

  onceArrived(listener: (hasArrived: boolean) => void): void {
    this.#answer.onceArrived(listener);
  }

  sendOnlyWhile(maySend: () => boolean): void {
    this.#answer.sendOnlyWhile(maySend);
  }

  breakOff(): void {
    this.#isBrokenOff = true;
    this.#answer.breakOff();
  }

  #end(): void {
    if (this.#state !== 'open' || !this.#paid) return;
    this.#state = 'ending';
    const { holdId, audio } = this.#paid;
    if (!this.#isBrokenOff && !this.#answer.wasHandedOver()) {
      this.#lostAnswers.lost(holdId, audio).finally(() => this.#over());
      return;
    }
    if (!this.#isBrokenOff) this.#lostAnswers.handedOver(holdId, audio, this.#answer);
    this.#over();
  }

  #over(): void {
    this.#state = 'over';
    for (const listener of this.#listeners) listener();
  }
}
