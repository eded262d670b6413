import type { Hold } from '../ledger/hold.ts';
import type { SpokenBy } from '../ledger/paid-for.ts';
import type { WorkEnd } from '../limits/unpaid-work.ts';
import type { HoldKeeper } from './hold-keeper.ts';
import type { PaymentHold, Receipt } from './payment-flow.ts';
import { type Refused, refused } from './refusal.ts';

/** How a flow tells its payer what is left in the balance, and what was taken from it, in micro-USD. */
export type ShowBalance<R extends Receipt> = (balanceMicroUsd: bigint, chargedMicroUsd: bigint) => R;

/** What a flow does with its holds. */
export interface Holder<R extends Receipt> {
  readonly show: ShowBalance<R>;
  /** Told when the money was taken. @param audio the whole of it; undefined where it is being heard already */
  captured?(entry: Hold, audio: Buffer | undefined): void;
}

/** What a hold on a balance needs besides the ledger's entry. */
export interface BalanceHoldParts<R extends Receipt> {
  readonly holder: Holder<R>;
  /** How long the lease is, and when it was asked for by the monotonic clock. */
  readonly lease: { readonly askedAt: number; readonly seconds: number };
  readonly endWork: (end: WorkEnd) => void;
}

/** Money of a balance in the ledger that is held for one answer. */
export class BalanceHold<R extends Receipt> implements PaymentHold<'TTS_UNAVAILABLE'> {
  /** As it was placed. */
  readonly entry: Hold;
  readonly #holds: HoldKeeper;
  readonly #parts: BalanceHoldParts<R>;
  #balanceMicroUsd: bigint;
  #chargedMicroUsd: bigint;

  constructor(holds: HoldKeeper, entry: Hold, parts: BalanceHoldParts<R>) {
    this.entry = entry;
    this.#holds = holds;
    this.#parts = parts;
    this.#balanceMicroUsd = entry.balanceMicroUsd;
    this.#chargedMicroUsd = entry.amountMicroUsd;
  }

  /** As if it were captured, until it is known that it is not. */
  get receipt(): R {
    return this.#parts.holder.show(this.#balanceMicroUsd, this.#chargedMicroUsd);
  }

  keep(lost: () => void): () => void {
    return this.#holds.keep(this.entry, this.#parts.lease, lost);
  }

  /** Refused when others may take this process for dead: then nothing may be delivered, and nothing is charged. */
  async capture(upstream: SpokenBy | undefined, audio?: Buffer): Promise<Refused<'TTS_UNAVAILABLE'> | undefined> {
    let isCaptured = false;
    try {
      isCaptured = await this.#holds.capture(this.entry, upstream);
    } finally {
      this.#parts.endWork(isCaptured ? 'paid' : 'unpaid');
      if (!isCaptured) this.#restored(this.#restoredMicroUsd);
    }
    if (!isCaptured) return refused('TTS_UNAVAILABLE', 'hold_lost', { isUncharged: true });
    this.#parts.holder.captured?.(this.entry, audio);
    return undefined;
  }

  /** The hold may still be pending afterwards, when the database is away (R33). */
  async void(): Promise<void> {
    try {
      this.#restored((await this.#holds.void(this.entry)) ?? this.#restoredMicroUsd);
    } finally {
      this.#parts.endWork('unpaid');
    }
  }

  get #restoredMicroUsd(): bigint {
    return this.entry.balanceMicroUsd + this.entry.amountMicroUsd;
  }

  #restored(balanceMicroUsd: bigint): void {
    this.#balanceMicroUsd = balanceMicroUsd;
    this.#chargedMicroUsd = 0n;
  }
}
