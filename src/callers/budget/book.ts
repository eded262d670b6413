import { type KnownOfPurchase, signedRest, uncountedDrop, type WatchedAccount } from '../client/budget.ts';
import type { Flow, PendingPurchase } from '../client/pending-purchase.ts';
import { reservedOf, type SignedRest } from '../client/used-cap.ts';

const VERSION = 2;

/** An unsettled purchase. Its maximum price counts as spent. */
interface OpenPurchase {
  readonly id: string;
  /** The name of the file that its process holds locked. */
  readonly owner: string;
  readonly day: string;
  readonly flow: Flow;
  readonly maxMicroUsd: bigint;
  readonly pending?: PendingPurchase;
}

interface DaySums {
  readonly spentMicroUsd: bigint;
  readonly unconfirmedMicroUsd: bigint;
}

/** The content of a budget file. It keeps only sums of settled purchases, no texts or identifiers. */
export class Book {
  /** Never pruned, so that setting the clock back frees nothing. */
  readonly #days = new Map<string, DaySums>();
  readonly #accounts = new Map<string, WatchedAccount>();
  readonly #open = new Map<string, OpenPurchase>();
  /** Amounts that unexpired signatures of settled purchases could still be charged. */
  #rests: readonly (SignedRest & { readonly day: string })[] = [];

  static parse(text: string): Book {
    const { speechgate, version, days, accounts, open, rests } = JSON.parse(text);
    if (speechgate !== 'budget' || version !== VERSION) throw new Error(`it is not a version ${VERSION} budget`);
    const book = new Book();
    for (const { day, spentMicroUsd, unconfirmedMicroUsd } of days) {
      book.#add(day, readAmount(spentMicroUsd), readAmount(unconfirmedMicroUsd));
    }
    for (const { account, expectedMicroUsd, lowestMicroUsd } of accounts) {
      const lowest = lowestMicroUsd === undefined ? {} : { lowestMicroUsd: readAmount(lowestMicroUsd) };
      book.#accounts.set(account, { expectedMicroUsd: readAmount(expectedMicroUsd), ...lowest });
    }
    for (const purchase of open) book.put({ ...purchase, maxMicroUsd: readAmount(purchase.maxMicroUsd) });
    book.#rests = rests.map((rest: { microUsd: unknown }) => ({ ...rest, microUsd: readAmount(rest.microUsd) }));
    return book;
  }

  toString(): string {
    const document = {
      speechgate: 'budget',
      version: VERSION,
      days: [...this.#days].map(([day, sums]) => ({ day, ...sums })),
      accounts: [...this.#accounts].map(([account, watched]) => ({ account, ...watched })),
      open: this.open,
      rests: this.#rests,
    };
    return `${JSON.stringify(document, (_name, value) => (typeof value === 'bigint' ? String(value) : value))}\n`;
  }

  get open(): readonly OpenPurchase[] {
    return [...this.#open.values()];
  }

  find(id: string): OpenPurchase | undefined {
    return this.#open.get(id);
  }

  put(purchase: OpenPurchase): void {
    this.#open.set(purchase.id, purchase);
  }

  /** The first settlement counts; later ones are ignored. */
  settle(id: string, chargedMicroUsd: bigint, known: KnownOfPurchase, nowMs: number): void {
    const purchase = this.#open.get(id);
    if (!purchase) return;
    this.#open.delete(id);
    const { day, pending } = purchase;
    const rest = signedRest(pending, chargedMicroUsd, known);
    this.#rests = this.#rests.filter(({ untilMs }) => nowMs < untilMs);
    if (rest) this.#rests = [...this.#rests, { day, ...rest }];
    this.#add(day, chargedMicroUsd, rest?.microUsd ?? 0n);
    if (!known.balance) return;
    const openMicroUsd = sum(this.open.filter(({ flow }) => flow === 'card').map(({ maxMicroUsd }) => maxMicroUsd));
    this.#add(day, uncountedDrop(this.#accounts, chargedMicroUsd, known.balance, openMicroUsd), 0n);
  }

  spentMicroUsd(day?: string): bigint {
    return sum(this.#of(day).map(({ spentMicroUsd }) => spentMicroUsd));
  }

  unconfirmedMicroUsd(day?: string): bigint {
    return sum(this.#of(day).map(({ unconfirmedMicroUsd }) => unconfirmedMicroUsd));
  }

  reserved(nowMs: number, day?: string): ReturnType<typeof reservedOf> {
    const isOf = (each: { readonly day: string }) => day === undefined || each.day === day;
    return reservedOf(this.open.filter(isOf), this.#rests.filter(isOf), nowMs);
  }

  #of(day: string | undefined): readonly DaySums[] {
    return [...this.#days].filter(([each]) => day === undefined || each === day).map(([, sums]) => sums);
  }

  #add(day: string, spentMicroUsd: bigint, unconfirmedMicroUsd: bigint): void {
    const sums = this.#days.get(day);
    this.#days.set(day, {
      spentMicroUsd: (sums?.spentMicroUsd ?? 0n) + spentMicroUsd,
      unconfirmedMicroUsd: (sums?.unconfirmedMicroUsd ?? 0n) + unconfirmedMicroUsd,
    });
  }
}

const sum = (amounts: readonly bigint[]): bigint => amounts.reduce((total, amount) => total + amount, 0n);

function readAmount(text: unknown): bigint {
  if (typeof text === 'string' && /^-?\d+$/.test(text)) return BigInt(text);
  throw new Error(`${text} is not an amount`);
}
