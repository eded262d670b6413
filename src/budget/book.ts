import { AccountFalls } from '../client/account-falls.ts';
import type { PendingPurchase } from '../client/pending-purchase.ts';
import type { SignedRest } from '../client/signed-rest.ts';
import type { Entry } from './entry.ts';

type Reserved = Extract<Entry, { kind: 'reserved' }>;
type Settled = Extract<Entry, { kind: 'settled' }>;

/** A purchase that is not settled: what it may cost counts as spent. */
export interface OpenPurchase extends Omit<Reserved, 'kind'> {
  /** What left, or was about to; undefined when nothing has. */
  readonly pending: PendingPurchase | undefined;
}

/** What the entries of a budget's file add up to. */
export class Book {
  readonly #open = new Map<string, OpenPurchase>();
  readonly #spent = new DaySums();
  readonly #unconfirmed = new DaySums();
  readonly #falls = new AccountFalls();
  #rests: readonly (SignedRest & { readonly day: string })[] = [];
  #hasFinished = false;

  /** @throws Error for an entry that can't follow those before it */
  apply(entry: Entry): void {
    switch (entry.kind) {
      case 'reserved': {
        const { kind: _, ...reserved } = entry;
        if (this.#open.has(entry.id)) throw new Error(`${entry.id} is reserved twice`);
        this.#open.set(entry.id, { ...reserved, pending: undefined });
        return;
      }
      case 'recorded':
        this.#open.set(entry.id, { ...this.#opened(entry.id), pending: entry.pending });
        return;
      case 'settled':
        this.#settle(entry);
        return;
      case 'spent':
        this.#spent.add(entry.day, entry.chargedMicroUsd);
        this.#unconfirmed.add(entry.day, entry.unconfirmedMicroUsd ?? 0n);
        return;
      case 'rest':
        this.#keep(entry.day, entry.restMicroUsd, entry.restUntil);
        return;
      case 'balance':
        this.#falls.settle(0n, entry, 0n);
        return;
      default:
        throw new Error('an entry of another kind');
    }
  }

  /** The fewest entries that add up to the same. Each day's sum stays, so that no clock set back makes room. */
  entries(): Entry[] {
    const spent = this.#spent.days().map((day): Entry => {
      const [chargedMicroUsd, unconfirmedMicroUsd] = [this.#spent.of(day), this.#unconfirmed.of(day)];
      return { kind: 'spent', day, chargedMicroUsd, ...(unconfirmedMicroUsd > 0n && { unconfirmedMicroUsd }) };
    });
    const rests = this.#rests.map(
      ({ day, microUsd, untilMs }): Entry => ({ kind: 'rest', day, restMicroUsd: microUsd, restUntil: untilMs }),
    );
    const balances = this.#falls.balances().map((balance): Entry => ({ kind: 'balance', ...balance }));
    const open = [...this.#open.values()].flatMap(({ pending, ...reserved }): Entry[] => [
      { kind: 'reserved', ...reserved },
      ...(pending ? [{ kind: 'recorded', id: reserved.id, pending } as const] : []),
    ]);
    return [...spent, ...rests, ...balances, ...open];
  }

  /** Whether the entries have texts and ids of purchases that are settled. */
  get hasFinished(): boolean {
    return this.#hasFinished;
  }

  find(id: string): OpenPurchase | undefined {
    return this.#open.get(id);
  }

  open(): readonly OpenPurchase[] {
    return [...this.#open.values()];
  }

  /** What the settled purchases of the day did cost, in micro-USD; of all days, where none is named. */
  spentMicroUsd(day?: string): bigint {
    return this.#spent.of(day);
  }

  /** What was signed and, by the service's word alone, not charged, in micro-USD. */
  unconfirmedMicroUsd(day?: string): bigint {
    return this.#unconfirmed.of(day);
  }

  /**
   * What the open purchases that were reserved on the day may cost, and what the signatures of settled ones could still be
   * charged, in micro-USD; of all days, where none is named.
   * @param nowMs Unix milliseconds
   */
  reservedMicroUsd(nowMs: number, day?: string): bigint {
    this.#rests = this.#rests.filter(({ untilMs }) => nowMs < untilMs);
    let sum = 0n;
    for (const rest of this.#rests) if (day === undefined || rest.day === day) sum += rest.microUsd;
    for (const purchase of this.#open.values()) {
      if (day === undefined || purchase.day === day) sum += purchase.maxMicroUsd;
    }
    return sum;
  }

  #opened(id: string): OpenPurchase {
    const purchase = this.#open.get(id);
    if (!purchase) throw new Error(`${id} is not reserved`);
    return purchase;
  }

  #settle({ id, chargedMicroUsd, restMicroUsd = 0n, restUntil = 0, account, balanceMicroUsd }: Settled): void {
    const { day, pending } = this.#opened(id);
    if (pending) this.#hasFinished = true;
    this.#open.delete(id);
    this.#spent.add(day, chargedMicroUsd);
    this.#unconfirmed.add(day, restMicroUsd);
    if (restMicroUsd > 0n) this.#keep(day, restMicroUsd, restUntil);
    if (account === undefined || balanceMicroUsd === undefined) return;
    const open = [...this.#open.values()].filter(({ flow }) => flow === 'card');
    const openMicroUsd = open.reduce((sum, { maxMicroUsd }) => sum + maxMicroUsd, 0n);
    this.#spent.add(day, this.#falls.settle(chargedMicroUsd, { account, balanceMicroUsd }, openMicroUsd));
  }

  #keep(day: string, microUsd: bigint, untilMs: number): void {
    this.#rests = [...this.#rests, { day, microUsd, untilMs }];
  }
}

/** Micro-USD by day, and in all. */
class DaySums {
  readonly #byDay = new Map<string, bigint>();
  #total = 0n;

  add(day: string, microUsd: bigint): void {
    this.#byDay.set(day, this.of(day) + microUsd);
    this.#total += microUsd;
  }

  of(day?: string): bigint {
    return day === undefined ? this.#total : (this.#byDay.get(day) ?? 0n);
  }

  days(): readonly string[] {
    return [...this.#byDay.keys()];
  }
}
