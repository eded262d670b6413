import type { AccountBalance, KnownOfPurchase } from './budget.ts';
import { OverCapError } from './errors.ts';
import { type UsedCap, usedText } from './money-text.ts';
import { CLOCK_LEEWAY_SECONDS, type Flow, type PendingPurchase } from './pending-purchase.ts';

/** A service whose `Date` is absurd can't make a time that is none. */
const MAX_DATE_MS = 8.64e15;

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

/** Caps the sum of a day, or of all days, and by the same amount what only the service reports as not charged. */
export interface Limit {
  readonly scope: OverCapError['scope'];
  readonly limitMicroUsd: bigint;
  readonly day?: string;
}

/** The part of a signed amount that the service reports as not charged. */
export interface SignedRest {
  readonly microUsd: bigint;
  /** Unix milliseconds of the local clock after which the signature is expired. */
  readonly untilMs: number;
}

interface DaySums {
  readonly spentMicroUsd: bigint;
  readonly unconfirmedMicroUsd: bigint;
}

interface WatchedAccount {
  /** The lowest balance that the counted charges explain. */
  readonly expectedMicroUsd: bigint;
  /** The lowest balance that the service reported while purchases were open. */
  readonly lowestMicroUsd?: bigint;
}

export interface BookState {
  readonly days: readonly (DaySums & { readonly day: string })[];
  readonly accounts: readonly (WatchedAccount & { readonly account: string })[];
  readonly open: readonly OpenPurchase[];
  readonly rests: readonly (SignedRest & { readonly day: string })[];
}

/** The purchases under a budget. It keeps only sums of settled ones, no texts or identifiers. */
export class Book {
  /** Never pruned, so that setting the clock back frees nothing. */
  readonly #days = new Map<string, DaySums>();
  readonly #accounts = new Map<string, WatchedAccount>();
  readonly #open = new Map<string, OpenPurchase>();
  /** Amounts that unexpired signatures of settled purchases could still be charged. */
  #rests: BookState['rests'];

  constructor({ days, accounts, open, rests }: BookState = { days: [], accounts: [], open: [], rests: [] }) {
    for (const { day, spentMicroUsd, unconfirmedMicroUsd } of days) this.#add(day, spentMicroUsd, unconfirmedMicroUsd);
    for (const { account, ...watched } of accounts) this.#accounts.set(account, watched);
    for (const purchase of open) this.#open.set(purchase.id, purchase);
    this.#rests = rests;
  }

  get state(): BookState {
    return {
      days: [...this.#days].map(([day, sums]) => ({ day, ...sums })),
      accounts: [...this.#accounts].map(([account, watched]) => ({ account, ...watched })),
      open: this.open,
      rests: this.#rests,
    };
  }

  get open(): readonly OpenPurchase[] {
    return [...this.#open.values()];
  }

  /** @throws OverCapError, with nothing reserved */
  reserve(purchase: OpenPurchase, limits: readonly Limit[], nowMs: number): void {
    const wantedMicroUsd = purchase.maxMicroUsd;
    for (const { usedMicroUsd, ...cap } of this.caps(limits, purchase.flow, nowMs)) {
      if (usedMicroUsd + wantedMicroUsd > cap.limitMicroUsd)
        throw new OverCapError({ ...cap, wantedMicroUsd }, usedText(cap.used, String));
    }
    this.#open.set(purchase.id, purchase);
  }

  record(id: string, pending: PendingPurchase): void {
    const purchase = this.#open.get(id);
    if (!purchase)
      throw new Error('The budget has already settled this reservation. Call reserve again before you sign.');
    const { maxMicroUsd } = purchase;
    if (BigInt(pending.maxMicroUsd) > maxMicroUsd) {
      throw new RangeError(
        `maxMicroUsd of the purchase is ${pending.maxMicroUsd}, but only ${maxMicroUsd} is reserved. Reserve the full amount before you sign.`,
      );
    }
    this.#open.set(id, { ...purchase, pending });
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
    if (known.balance) this.#add(day, this.#uncountedDrop(chargedMicroUsd, known.balance), 0n);
  }

  spentMicroUsd(day?: string): bigint {
    return sum(this.#of(day).map(({ spentMicroUsd }) => spentMicroUsd));
  }

  unconfirmedMicroUsd(day?: string): bigint {
    return sum(this.#of(day).map(({ unconfirmedMicroUsd }) => unconfirmedMicroUsd));
  }

  reserved(nowMs: number, day?: string) {
    const isCounted = (each: { readonly day: string }) => day === undefined || each.day === day;
    const open = this.open.filter(isCounted);
    const rests = this.#rests.filter((rest) => isCounted(rest) && nowMs < rest.untilMs);
    const lastMs = Math.max(
      ...open.map(({ pending }) => untilMsOf(pending?.expiresAt)),
      ...rests.map(({ untilMs }) => untilMs),
    );
    return {
      reservedMicroUsd: sum([...open.map(({ maxMicroUsd }) => maxMicroUsd), ...rests.map(({ microUsd }) => microUsd)]),
      reservedUntil: nowMs < lastMs ? new Date(Math.min(lastMs, MAX_DATE_MS)) : null,
    };
  }

  /** Card purchases need no signature, so what is unconfirmed does not limit them. */
  caps(limits: readonly Limit[], flow: Flow | undefined, nowMs: number) {
    const spent = limits.map(({ scope, limitMicroUsd, day }) =>
      capOf(scope, limitMicroUsd, { spentMicroUsd: this.spentMicroUsd(day), ...this.reserved(nowMs, day) }),
    );
    const unconfirmed = limits.map(({ limitMicroUsd, day }) =>
      capOf('unconfirmed', limitMicroUsd, { unconfirmedMicroUsd: this.unconfirmedMicroUsd(day) }),
    );
    return flow === 'card' ? spent : [...spent, ...unconfirmed];
  }

  /**
   * Micro-USD to count beyond the reported charge of a card purchase. That charge is unsigned, so a larger drop of the
   * balance counts instead.
   */
  #uncountedDrop(chargedMicroUsd: bigint, { account, balanceMicroUsd }: AccountBalance): bigint {
    // The most that open purchases may have taken by now.
    const openMicroUsd = sum(this.open.filter(({ flow }) => flow === 'card').map(({ maxMicroUsd }) => maxMicroUsd));
    const known = this.#accounts.get(account);
    if (balanceMicroUsd === null) {
      // The next balance falls by this charge, which is counted already.
      if (known) this.#accounts.set(account, { ...known, expectedMicroUsd: known.expectedMicroUsd - chargedMicroUsd });
      return 0n;
    }
    const expected = known ? known.expectedMicroUsd - chargedMicroUsd : balanceMicroUsd;
    const missing = expected - openMicroUsd - balanceMicroUsd;
    const uncounted = missing > 0n ? missing : 0n;
    // Responses can arrive out of order. Without a top-up the lowest balance is the newest.
    const lowest = known?.lowestMicroUsd;
    const newest = lowest !== undefined && lowest < balanceMicroUsd ? lowest : balanceMicroUsd;
    this.#accounts.set(
      account,
      openMicroUsd === 0n
        ? { expectedMicroUsd: newest }
        : { expectedMicroUsd: expected - uncounted, lowestMicroUsd: newest },
    );
    return uncounted;
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

export function signedRest(
  pending: PendingPurchase | undefined,
  chargedMicroUsd: bigint,
  { isUnsent = false, clockAheadMs = 0 }: KnownOfPurchase,
): SignedRest | undefined {
  if (isUnsent || !pending || pending.expiresAt === null) return undefined;
  const microUsd = BigInt(pending.maxMicroUsd) - chargedMicroUsd;
  const untilMs = untilMsOf(pending.expiresAt) + Math.max(0, clockAheadMs);
  return microUsd > 0n ? { microUsd, untilMs } : undefined;
}

/** In Unix milliseconds, with the leeway; 0 without an expiry. */
const untilMsOf = (expiresAt: number | null | undefined): number =>
  expiresAt == null ? 0 : (expiresAt + CLOCK_LEEWAY_SECONDS) * 1000;

function capOf(scope: OverCapError['scope'], limitMicroUsd: bigint, used: UsedCap) {
  const { spentMicroUsd = 0n, reservedMicroUsd = 0n, unconfirmedMicroUsd = 0n } = used;
  const usedMicroUsd = spentMicroUsd + reservedMicroUsd + unconfirmedMicroUsd;
  const leftMicroUsd = limitMicroUsd > usedMicroUsd ? limitMicroUsd - usedMicroUsd : 0n;
  return { scope, limitMicroUsd, usedMicroUsd, leftMicroUsd, used };
}

const sum = (amounts: readonly bigint[]): bigint => amounts.reduce((total, amount) => total + amount, 0n);
