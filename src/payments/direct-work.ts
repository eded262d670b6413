import { type EndWork, UnpaidWork, type WorkLimits } from '../limits/unpaid-work.ts';
import { WorkTally } from '../limits/work-tally.ts';
import { type Refused, refused } from './refusal.ts';

/** What a synthesis came to. `unsettled`: it was made, and the settlement failed. */
export type DirectWorkEnd = 'settled' | 'unsettled' | 'voided' | 'not begun';

export interface DirectWorkLimits extends WorkLimits {
  /** With this much work lost to settlements that failed, of all payers together, no more is begun (R21b). */
  readonly maxUnsettledMs: number;
}

/**
 * Bounds the upstream work for direct payments that were not settled: first of each payer and of each address, whose own
 * timed-out syntheses count too, and last of all together. There only what a failed settlement has lost counts, as that
 * needs payers who have the money and then have not; a synthesis that was voided, as in an outage of the provider, gives
 * its seconds back.
 */
export class DirectWork {
  readonly #payers: UnpaidWork;
  readonly #addresses: UnpaidWork;
  readonly #all: WorkTally;
  readonly #maxUnsettledMs: number;

  constructor({ maxUnsettledMs, ...limits }: DirectWorkLimits) {
    this.#payers = new UnpaidWork(limits);
    this.#addresses = new UnpaidWork(limits);
    this.#all = new WorkTally(limits.windowMs);
    this.#maxUnsettledMs = maxUnsettledMs;
  }

  /** Seconds of all syntheses that run, and of those that were lost to failed settlements. */
  get unsettledSeconds(): number {
    const now = performance.now();
    return (this.#all.runningMs(now) + this.#all.lostMs(now)) / 1000;
  }

  /** Begins a synthesis, or refuses it. @param address as limits count it */
  begin(
    payer: string,
    address: string,
  ):
    | { readonly outcome: 'begun'; readonly end: (end: DirectWorkEnd) => void }
    | Refused<'RATE_LIMITED' | 'TTS_UNAVAILABLE'> {
    const ofPayer = this.#payers.begin(payer);
    if (ofPayer.outcome === 'refused') return refused('RATE_LIMITED', ofPayer.reason);
    const ofAddress = this.#addresses.begin(address);
    if (ofAddress.outcome === 'refused') {
      ofPayer.end('not begun');
      return refused('RATE_LIMITED', ofAddress.reason);
    }
    const keyed = [ofPayer.end, ofAddress.end];
    const startedAt = performance.now();
    if (this.#all.lostMs(startedAt) >= this.#maxUnsettledMs) {
      for (const end of keyed) end('not begun');
      return refused('TTS_UNAVAILABLE', 'too_many_unsettled');
    }
    return { outcome: 'begun', end: this.#counted(keyed, startedAt) };
  }

  #counted(keyed: readonly EndWork[], startedAt: number): (end: DirectWorkEnd) => void {
    this.#all.begin(startedAt);
    let isOpen = true;
    return (end) => {
      if (!isOpen) return;
      isOpen = false;
      const now = performance.now();
      this.#all.end(startedAt);
      if (end === 'unsettled') this.#all.lose(now - startedAt, now);
      for (const endKeyed of keyed) endKeyed(KEYED[end]);
    };
  }
}

const KEYED = { settled: 'paid', unsettled: 'unpaid', voided: 'unpaid', 'not begun': 'not begun' } as const;
