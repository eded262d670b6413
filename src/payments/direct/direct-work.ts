import type { WorkLimits } from '../../config/work-limits.ts';
import { type EndWork, UnpaidWorkLimiter, WorkTally } from '../limits/unpaid-work-limiter.ts';
import { type Refused, refused } from '../refusal.ts';

/** `facilitator failed`: unsettled through no fault of the payer. */
export type DirectWorkEnd = 'settled' | 'unsettled' | 'facilitator failed' | 'voided' | 'not begun';

interface DirectWorkLimits extends WorkLimits {
  /** No work begins once the failed settlements of all payers have lost this much (R21b). */
  readonly maxUnsettledMs: number;
}

/** Bounds unsettled work per payer, per address and in total. The total ignores the failed syntheses of an outage. */
export class DirectWork {
  readonly #payers: UnpaidWorkLimiter;
  readonly #addresses: UnpaidWorkLimiter;
  readonly #all: WorkTally;
  readonly #maxUnsettledMs: number;

  constructor({ maxUnsettledMs, ...limits }: DirectWorkLimits) {
    this.#payers = new UnpaidWorkLimiter(limits);
    this.#addresses = new UnpaidWorkLimiter(limits);
    this.#all = new WorkTally(limits.windowMs);
    this.#maxUnsettledMs = maxUnsettledMs;
  }

  get unsettledSeconds(): number {
    const now = performance.now();
    return (this.#all.runningMs(now) + this.#all.lostMs(now)) / 1000;
  }

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
      if (end === 'unsettled' || end === 'facilitator failed') this.#all.lose(now - startedAt, now);
      for (const endKeyed of keyed) endKeyed(KEYED[end]);
    };
  }
}

const KEYED = {
  settled: 'paid',
  unsettled: 'unpaid',
  'facilitator failed': 'not begun',
  voided: 'unpaid',
  'not begun': 'not begun',
} as const;
