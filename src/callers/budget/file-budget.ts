import { createHash, randomUUID } from 'node:crypto';
import type { Book, Limit } from '../client/book.ts';
import { type Budget, checkCall, type KnownOfPurchase, type Reservation } from '../client/budget.ts';
import { checkedOptions } from '../client/check-options.ts';
import { type Flow, isRepeatable, type PendingPurchase } from '../client/pending-purchase.ts';
import { BudgetStore } from './budget-store.ts';
import type { SavedSpeech } from './purchases.ts';

const OVERDUE_SECONDS = 60;
const LIMITS = { perCallMicroUsd: 'bigint', perDayMicroUsd: 'bigint', totalMicroUsd: 'bigint' } as const;

/** Micro-USD. Signed amounts reported as not charged are a second sum with the same limits. */
export interface BudgetLimits {
  readonly perCallMicroUsd?: bigint | undefined;
  /** Per UTC day. A purchase counts for the day of its reservation. */
  readonly perDayMicroUsd?: bigint | undefined;
  readonly totalMicroUsd?: bigint | undefined;
}

export interface BudgetState {
  readonly spentTodayMicroUsd: bigint;
  readonly spentMicroUsd: bigint;
  /** Purchases with an unknown outcome, and signatures that could still be charged. */
  readonly reservedMicroUsd: bigint;
  /** When the last of these signatures expires; null if there is none. */
  readonly reservedUntil: Date | null;
  readonly unconfirmedTodayMicroUsd: bigint;
  readonly unconfirmedMicroUsd: bigint;
  /** The remainder under the limits per day and in total; null without either. */
  readonly leftMicroUsd: bigint | null;
}

/** An open purchase whose process has exited, or whose signature has expired. */
export interface LostPurchase {
  readonly reservationId: string;
  readonly pending: PendingPurchase | undefined;
}

interface OutcomeResolver {
  resolveOutcome(pending: PendingPurchase): Promise<{
    readonly chargedMicroUsd: bigint;
    readonly speech: { readonly audio: ReadableStream<Uint8Array> } | null;
  } | null>;
}

/**
 * Opens a budget file. All processes share its sums; each has its own limits. Creates `….lock` and `….owners` beside it.
 * @throws TypeError for an invalid limit; ForeignFileError, DamagedBudgetError, FileBusyError
 */
export async function openFileBudget(
  path: string,
  limits: BudgetLimits,
  now: () => number = Date.now,
): Promise<FileBudget> {
  const checked = checkedOptions(limits, LIMITS);
  return new FileBudget(await BudgetStore.open(path), checked, now);
}

/** Each reservation is on disk before anything is signed. An unknown outcome counts in full. */
export class FileBudget implements Budget {
  readonly #store: BudgetStore;
  readonly #limits: BudgetLimits;
  readonly #now: () => number;
  readonly #settlements = new Map<string, { readonly chargedMicroUsd: bigint; readonly known: KnownOfPurchase }>();

  constructor(store: BudgetStore, limits: BudgetLimits, now: () => number) {
    this.#store = store;
    this.#limits = limits;
    this.#now = now;
  }

  /** @throws OverCapError; FileBusyError and disk errors, with nothing reserved */
  async reserve({ flow, maxMicroUsd }: Parameters<Budget['reserve']>[0]): Promise<Reservation> {
    assertAmount(maxMicroUsd);
    await this.#writeSettlements();
    const id = randomUUID();
    await this.#store.change((book) => {
      checkCall(maxMicroUsd, [this.#limits.perCallMicroUsd]);
      const day = this.#today();
      book.reserve({ id, owner: this.#store.owner, day, flow, maxMicroUsd }, this.#limitsOf(day), this.#now());
    });
    return this.#reservation(id);
  }

  /**
   * Settlements that are not written yet count as reserved. Card purchases need no signature, so
   * `unconfirmed` does not limit what is left for the flow `card`.
   * @throws as `reserve`, except OverCapError
   */
  async read(flow?: Flow): Promise<BudgetState> {
    await this.#writeSettlements().catch(() => {});
    return this.#store.change((book) => {
      const day = this.#today();
      const caps = book.caps(this.#limitsOf(day), flow, this.#now());
      const remainders = caps.map(({ leftMicroUsd }) => leftMicroUsd);
      return {
        spentTodayMicroUsd: book.spentMicroUsd(day),
        spentMicroUsd: book.spentMicroUsd(),
        ...book.reserved(this.#now()),
        unconfirmedTodayMicroUsd: book.unconfirmedMicroUsd(day),
        unconfirmedMicroUsd: book.unconfirmedMicroUsd(),
        leftMicroUsd:
          remainders.length === 0 ? null : remainders.reduce((least, left) => (left < least ? left : least)),
      };
    });
  }

  /** The open purchases of exited owners, and those a minute past their expiry. */
  async lost(): Promise<readonly LostPurchase[]> {
    return this.#store.change(async (book) => {
      const ended = new Map<string, boolean>();
      const lost: LostPurchase[] = [];
      for (const { id, owner, pending } of book.open) {
        if (!ended.has(owner)) ended.set(owner, await this.#store.hasExited(owner));
        if (ended.get(owner) || this.#isOverdue(pending)) lost.push({ reservationId: id, pending });
      }
      return lost;
    });
  }

  /**
   * Settles lost purchases: at zero if nothing was sent, else as reported. Tries all, then throws the first error.
   * @param saved receives purchases with available audio before they are settled
   */
  async concludeLost(client: OutcomeResolver, saved?: Pick<SavedSpeech, 'save'>): Promise<void> {
    const failures: unknown[] = [];
    for (const { reservationId, pending } of await this.lost()) {
      try {
        const conclusion = pending ? await client.resolveOutcome(pending) : { chargedMicroUsd: 0n, speech: null };
        await conclusion?.speech?.audio.cancel();
        if (conclusion?.speech && pending) await saved?.save(pending);
        if (conclusion) await this.#settle(reservationId, conclusion.chargedMicroUsd);
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  /** The open purchase with this payment identifier, nonce or idempotency key, of any process. */
  async find(identifier: string): Promise<{ pending: PendingPurchase; reservation: Reservation } | undefined> {
    const found = await this.#store.change((book) =>
      book.open.find(({ pending }) => pending?.identifier === identifier),
    );
    return found?.pending && { pending: found.pending, reservation: this.#reservation(found.id) };
  }

  async resumable(): Promise<readonly PendingPurchase[]> {
    return this.#store.change((book) =>
      book.open.flatMap(({ pending }) => (pending && isRepeatable(pending) ? [pending] : [])),
    );
  }

  /** Other processes can settle the open purchases after this. */
  close(): Promise<void> {
    return this.#store.close();
  }

  #reservation(id: string): Reservation {
    return {
      record: (pending) => this.#store.change((book) => book.record(id, pending)),
      settle: (chargedMicroUsd, known) => this.#settle(id, chargedMicroUsd, known),
    };
  }

  /** Never fails: a settlement that can't be written is retried later, and the purchase counts in full until then. */
  async #settle(id: string, chargedMicroUsd: bigint, known: KnownOfPurchase = {}): Promise<void> {
    assertAmount(chargedMicroUsd);
    this.#settlements.set(id, { chargedMicroUsd, known });
    await this.#writeSettlements().catch(() => {});
  }

  async #writeSettlements(): Promise<void> {
    const settlements = [...this.#settlements];
    if (settlements.length === 0) return;
    await this.#store.change((book) => {
      for (const [id, { chargedMicroUsd, known }] of settlements)
        book.settle(id, chargedMicroUsd, { ...accountOf(book, id), ...known }, this.#now());
    });
    for (const [id] of settlements) this.#settlements.delete(id);
  }

  #limitsOf(day: string): readonly Limit[] {
    const { perDayMicroUsd, totalMicroUsd } = this.#limits;
    return [
      ...(perDayMicroUsd === undefined ? [] : [{ scope: 'day', limitMicroUsd: perDayMicroUsd, day } as const]),
      ...(totalMicroUsd === undefined ? [] : [{ scope: 'total', limitMicroUsd: totalMicroUsd } as const]),
    ];
  }

  #isOverdue(pending: PendingPurchase | undefined): boolean {
    const expiresAt = pending?.expiresAt ?? Number.POSITIVE_INFINITY;
    return this.#now() / 1000 > expiresAt + OVERDUE_SECONDS;
  }

  #today(): string {
    return new Date(this.#now()).toISOString().slice(0, 10);
  }
}

/** Who settles the purchase of another process doesn't know the balance after it. */
function accountOf(book: Book, id: string): KnownOfPurchase {
  const account = book.open.find((purchase) => purchase.id === id)?.pending?.headers['x-credit-account'];
  if (account === undefined) return {};
  return { balance: { account: createHash('sha256').update(account).digest('hex'), balanceMicroUsd: null } };
}

function assertAmount(microUsd: bigint): void {
  if (microUsd < 0n) throw new RangeError(`The amount ${microUsd} micro-USD is negative. Pass 0 or more.`);
}
