import type { PendingPurchase } from '../client/pending-purchase.ts';
import type { Entry } from './entry.ts';

type Reserved = Extract<Entry, { kind: 'reserved' }>;

/** A purchase that is not settled: what it may cost counts as spent. */
export interface OpenPurchase extends Omit<Reserved, 'kind'> {
  /** What left, or was about to; undefined when nothing has. */
  readonly pending: PendingPurchase | undefined;
}

/** What the entries of a budget's file add up to. */
export class Book {
  readonly #open = new Map<string, OpenPurchase>();
  readonly #spent = new Map<string, bigint>();
  #totalSpent = 0n;

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
        this.#spend(this.#opened(entry.id).day, entry.chargedMicroUsd);
        this.#open.delete(entry.id);
        return;
      case 'spent':
        this.#spend(entry.day, entry.chargedMicroUsd);
        return;
      default:
        throw new Error('an entry of another kind');
    }
  }

  /** The fewest entries that add up to the same. Each day's sum stays, so that no clock set back makes room. */
  entries(): Entry[] {
    const spent: Entry[] = [...this.#spent].map(([day, chargedMicroUsd]) => ({ kind: 'spent', day, chargedMicroUsd }));
    const open = [...this.#open.values()].flatMap(({ pending, ...reserved }): Entry[] => [
      { kind: 'reserved', ...reserved },
      ...(pending ? [{ kind: 'recorded', id: reserved.id, pending } as const] : []),
    ]);
    return [...spent, ...open];
  }

  find(id: string): OpenPurchase | undefined {
    return this.#open.get(id);
  }

  open(): readonly OpenPurchase[] {
    return [...this.#open.values()];
  }

  /** What the settled purchases of the day did cost, in micro-USD; of all days, where none is named. */
  spentMicroUsd(day?: string): bigint {
    return day === undefined ? this.#totalSpent : (this.#spent.get(day) ?? 0n);
  }

  /** What the open purchases that were reserved on the day may cost, in micro-USD; of all days, where none is named. */
  reservedMicroUsd(day?: string): bigint {
    let sum = 0n;
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

  #spend(day: string, microUsd: bigint): void {
    this.#spent.set(day, (this.#spent.get(day) ?? 0n) + microUsd);
    this.#totalSpent += microUsd;
  }
}
