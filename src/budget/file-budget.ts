import { randomUUID } from 'node:crypto';
import type { Budget, KnownOfPurchase, Reservation } from '../client/budget.ts';
import { AMOUNT, checkedOptions } from '../client/check-options.ts';
import { OverCapError } from '../client/errors.ts';
import { type Flow, isRepeatable, type PendingPurchase } from '../client/pending-purchase.ts';
import { signedRest } from '../client/signed-rest.ts';
import type { Book, OpenPurchase } from './book.ts';
import type { Entry } from './entry.ts';
import type { KeptSpeech } from './kept-speech.ts';
import { SharedBook } from './shared-book.ts';

const OVERDUE_SECONDS = 60;
const LIMITS = { perCallMicroUsd: AMOUNT, perDayMicroUsd: AMOUNT, totalMicroUsd: AMOUNT } as const;

/**
 * Micro-USD; what is left out is not limited. As much again as a day, or all days, may cost may be signed and, by the
 * service's word alone, not charged.
 */
export interface BudgetLimits {
  readonly perCallMicroUsd?: bigint | undefined;
  /** A day of UTC. A purchase belongs to the day on which it was reserved. */
  readonly perDayMicroUsd?: bigint | undefined;
  readonly totalMicroUsd?: bigint | undefined;
}

/** Amounts in micro-USD. What is reserved is not spent yet, and can't be spent otherwise. */
export interface BudgetState {
  readonly spentTodayMicroUsd: bigint;
  readonly spentMicroUsd: bigint;
  /** Of purchases whose end is not known, and of signatures that could still be charged. */
  readonly reservedMicroUsd: bigint;
  /** What was signed and, by the service's word alone, not charged. */
  readonly unconfirmedTodayMicroUsd: bigint;
  readonly unconfirmedMicroUsd: bigint;
  /** What the limits of today and in total leave for further purchases; null where there is neither. */
  readonly leftMicroUsd: bigint | null;
}

/** A purchase that nobody will settle who knows its end. */
export interface LostPurchase {
  readonly reservationId: string;
  /** What had left, or was about to; undefined when nothing had. */
  readonly pending: PendingPurchase | undefined;
}

/** Of the client: how a purchase that nobody waits for has ended. */
interface Concluding {
  conclude(pending: PendingPurchase): Promise<{
    readonly chargedMicroUsd: bigint;
    readonly speech: { readonly audio: ReadableStream<Uint8Array> } | null;
  } | null>;
}

/**
 * Opens a budget that is kept in a file, together with all other processes that have it open. The limits are the
 * opener's own; what was spent and reserved is everybody's. Beside the file there are `….lock` and `….owners`.
 * @param now milliseconds since the epoch
 * @throws TypeError for a limit that is none; ForeignFileError, DamagedBudgetError, FileBusyError
 */
export async function openFileBudget(
  path: string,
  limits: BudgetLimits,
  now: () => number = Date.now,
): Promise<FileBudget> {
  const checked = checkedOptions('openFileBudget', limits, LIMITS);
  return new FileBudget(await SharedBook.open(path), checked, now);
}

/**
 * A budget that holds across processes, also when some of them are killed: what may be spent is on the disk before
 * anything is signed, and what ended in an unknown way counts in full until it is known.
 */
export class FileBudget implements Budget {
  readonly #shared: SharedBook;
  readonly #limits: BudgetLimits;
  readonly #now: () => number;
  /** What is known of purchases, and could not be written yet, by the reservation. */
  readonly #unwritten = new Map<string, { readonly chargedMicroUsd: bigint; readonly known: KnownOfPurchase }>();

  constructor(shared: SharedBook, limits: BudgetLimits, now: () => number) {
    this.#shared = shared;
    this.#limits = limits;
    this.#now = now;
  }

  /** @throws OverCapError; FileBusyError and errors of the disk, after which nothing is reserved either */
  async reserve(purchase: { readonly flow: Flow; readonly maxMicroUsd: bigint }): Promise<Reservation> {
    const { flow, maxMicroUsd } = purchase;
    assertAmount(maxMicroUsd);
    await this.#settleUnwritten();
    const id = randomUUID();
    await this.#shared.change((book) => {
      const day = this.#today();
      this.#assertWithin(book, day, purchase);
      const { owner } = this.#shared;
      return { entries: [{ kind: 'reserved', id, owner, day, flow, maxMicroUsd }], result: undefined };
    });
    return this.#reservation(id);
  }

  /** What is known and can't be written yet counts as reserved. @throws as `reserve` does, but for the cap */
  async read(): Promise<BudgetState> {
    await this.#settleUnwritten().catch(() => {});
    return this.#shared.change((book) => {
      const day = this.#today();
      const lefts = this.#caps(book, day).map(({ leftMicroUsd }) => leftMicroUsd);
      const result = {
        spentTodayMicroUsd: book.spentMicroUsd(day),
        spentMicroUsd: book.spentMicroUsd(),
        reservedMicroUsd: book.reservedMicroUsd(this.#now()),
        unconfirmedTodayMicroUsd: book.unconfirmedMicroUsd(day),
        unconfirmedMicroUsd: book.unconfirmedMicroUsd(),
        leftMicroUsd: lefts.length === 0 ? null : lefts.reduce((least, left) => (left < least ? left : least)),
      };
      return { entries: [], result };
    });
  }

  /**
   * The open purchases of processes that have ended or have closed the budget, and those that were given up: a minute
   * after the service took them no longer.
   */
  async lost(): Promise<readonly LostPurchase[]> {
    return this.#shared.change(async (book) => {
      const ended = new Map<string, boolean>();
      const lost: LostPurchase[] = [];
      for (const { id, owner, pending } of book.open()) {
        if (!ended.has(owner)) ended.set(owner, await this.#shared.hasEnded(owner));
        if (ended.get(owner) || this.#isOverdue(pending)) lost.push({ reservationId: id, pending });
      }
      return { entries: [], result: lost };
    });
  }

  /**
   * Settles what is lost: at nothing where nothing had left, else as the service tells. What it can't tell yet stays
   * reserved. Asks for all, and throws the first failure then.
   * @param kept gets those whose audio can be had, before they are settled
   */
  async concludeLost(client: Concluding, kept?: Pick<KeptSpeech, 'keep'>): Promise<void> {
    const failures: unknown[] = [];
    for (const { reservationId, pending } of await this.lost()) {
      try {
        const concluded = pending ? await client.conclude(pending) : { chargedMicroUsd: 0n, speech: null };
        await concluded?.speech?.audio.cancel();
        if (concluded?.speech && pending) await kept?.keep(pending);
        if (concluded) await this.#settle(reservationId, concluded.chargedMicroUsd);
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  /** The open purchase with this payment identifier, nonce or idempotency-key, whichever process has begun it. */
  async find(identifier: string): Promise<{ pending: PendingPurchase; reservation: Reservation } | undefined> {
    const found = await this.#shared.change((book) => ({
      entries: [],
      result: book.open().find(({ pending }) => pending?.identifier === identifier),
    }));
    return found?.pending && { pending: found.pending, reservation: this.#reservation(found.id) };
  }

  /** The open purchases that can be asked for by their identifier, whichever process has begun them. */
  async resumable(): Promise<readonly PendingPurchase[]> {
    return this.#shared.change((book) => ({
      entries: [],
      result: book.open().flatMap(({ pending }) => (pending && isRepeatable(pending) ? [pending] : [])),
    }));
  }

  /** Lets others conclude what this process has left open. */
  close(): Promise<void> {
    return this.#shared.close();
  }

  #reservation(id: string): Reservation {
    return {
      record: (pending) => this.#record(id, pending),
      settle: (chargedMicroUsd, known) => this.#settle(id, chargedMicroUsd, known),
    };
  }

  #record(id: string, pending: PendingPurchase): Promise<void> {
    return this.#shared.change((book) => {
      const purchase = book.find(id);
      if (!purchase) throw new Error('Nothing is reserved for this purchase any more.');
      assertCovers(purchase, pending);
      return { entries: [{ kind: 'recorded', id, pending }], result: undefined };
    });
  }

  /**
   * Whoever knows first how it ended says it; all others know the same. Where the disk does not take that, it counts in
   * full until it does: what was bought is had all the same.
   */
  async #settle(id: string, chargedMicroUsd: bigint, known: KnownOfPurchase = {}): Promise<void> {
    assertAmount(chargedMicroUsd);
    this.#unwritten.set(id, { chargedMicroUsd, known });
    await this.#settleUnwritten().catch(() => {});
  }

  async #settleUnwritten(): Promise<void> {
    const ids = [...this.#unwritten.keys()];
    if (ids.length === 0) return;
    await this.#shared.change((book) => {
      const entries = ids.flatMap((id) => {
        const unwritten = this.#unwritten.get(id);
        const purchase = book.find(id);
        return unwritten && purchase ? [settledEntry(purchase, unwritten.chargedMicroUsd, unwritten.known)] : [];
      });
      return { entries, result: undefined };
    });
    for (const id of ids) this.#unwritten.delete(id);
  }

  #assertWithin(
    book: Book,
    day: string,
    { flow, maxMicroUsd: wantedMicroUsd }: Parameters<Budget['reserve']>[0],
  ): void {
    const { perCallMicroUsd, perDayMicroUsd, totalMicroUsd } = this.#limits;
    const unconfirmed = [
      ...capOf('unconfirmed', perDayMicroUsd, book.unconfirmedMicroUsd(day)),
      ...capOf('unconfirmed', totalMicroUsd, book.unconfirmedMicroUsd()),
    ];
    const caps = [
      ...capOf('call', perCallMicroUsd, 0n),
      ...this.#caps(book, day),
      ...(flow === 'card' ? [] : unconfirmed),
    ];
    for (const { scope, limitMicroUsd, leftMicroUsd, usedMicroUsd } of caps) {
      if (usedMicroUsd + wantedMicroUsd <= limitMicroUsd) continue;
      throw new OverCapError({ scope, limitMicroUsd, leftMicroUsd, wantedMicroUsd });
    }
  }

  /** The limits on sums, and what they leave. */
  #caps(book: Book, day: string) {
    const { perDayMicroUsd, totalMicroUsd } = this.#limits;
    const used = (of?: string) => book.spentMicroUsd(of) + book.reservedMicroUsd(this.#now(), of);
    return [...capOf('day', perDayMicroUsd, used(day)), ...capOf('total', totalMicroUsd, used())];
  }

  #isOverdue(pending: PendingPurchase | undefined): boolean {
    const expiresAt = pending?.expiresAt ?? Number.POSITIVE_INFINITY;
    return this.#now() / 1000 > expiresAt + OVERDUE_SECONDS;
  }

  #today(): string {
    return new Date(this.#now()).toISOString().slice(0, 10);
  }
}

function capOf<Scope extends OverCapError['scope']>(
  scope: Scope,
  limitMicroUsd: bigint | undefined,
  usedMicroUsd: bigint,
) {
  if (limitMicroUsd === undefined) return [];
  const leftMicroUsd = limitMicroUsd > usedMicroUsd ? limitMicroUsd - usedMicroUsd : 0n;
  return [{ scope, limitMicroUsd, usedMicroUsd, leftMicroUsd }];
}

function settledEntry({ id, pending }: OpenPurchase, chargedMicroUsd: bigint, known: KnownOfPurchase): Entry {
  const rest = signedRest(pending, chargedMicroUsd, known);
  return {
    kind: 'settled',
    id,
    chargedMicroUsd,
    ...(rest && { restMicroUsd: rest.microUsd, restUntil: rest.untilMs }),
    ...known.balance,
  };
}

function assertAmount(microUsd: bigint): void {
  if (microUsd < 0n) throw new RangeError(`${microUsd} micro-USD is no amount to spend.`);
}

function assertCovers({ maxMicroUsd }: OpenPurchase, pending: PendingPurchase): void {
  if (BigInt(pending.maxMicroUsd) <= maxMicroUsd) return;
  throw new RangeError(`${pending.maxMicroUsd} micro-USD is more than the ${maxMicroUsd} that were reserved.`);
}
