import { OverCapError } from './errors.ts';
import type { Flow, PendingPurchase } from './pending-purchase.ts';
import { reservedOf, type SignedRest, type UsedCap, untilMsOf } from './used-cap.ts';

/** Limits spending. The client reserves the maximum price before it signs anything. */
export interface Budget {
  /** @throws OverCapError */
  reserve(purchase: { readonly flow: Flow; readonly maxMicroUsd: bigint }): Promise<Reservation>;
}

/** The amount reserved for one purchase. It stays reserved while the outcome is unknown. */
export interface Reservation {
  /** Saves the request in case this process dies. The client sends it only after this resolves. */
  record(pending: PendingPurchase): Promise<void>;
  /** Called once, with the amount that the service reports. The rest of a signed maximum stays reserved until it expires. */
  settle(chargedMicroUsd: bigint, known?: KnownOfPurchase): Promise<void>;
}

export interface KnownOfPurchase {
  /** The request was never sent, so nobody has its signature. */
  readonly isUnsent?: boolean;
  /** How far the local clock is ahead of the service's. */
  readonly clockAheadMs?: number;
  readonly balance?: AccountBalance;
}

export interface AccountBalance {
  /** SHA-256 of the account's id. */
  readonly account: string;
  readonly balanceMicroUsd: bigint;
}

export function checkCall(maxMicroUsd: bigint, limits: readonly (bigint | undefined)[]): void {
  for (const limit of limits) {
    if (limit !== undefined && maxMicroUsd > limit) {
      throw new OverCapError({ scope: 'call', limitMicroUsd: limit, leftMicroUsd: limit, wantedMicroUsd: maxMicroUsd });
    }
  }
}

/** Caps all purchases of one client. Signed amounts reported as not charged are a second sum with the same cap. */
export class TotalCap implements Budget {
  readonly #limit: bigint;
  readonly #accounts = new Map<string, WatchedAccount>();
  readonly #open = new Set<{ readonly maxMicroUsd: bigint; pending?: PendingPurchase }>();
  #spent = 0n;
  #unconfirmed = 0n;
  #rests: readonly SignedRest[] = [];

  constructor(limitMicroUsd: bigint) {
    this.#limit = limitMicroUsd;
  }

  async reserve({ flow, maxMicroUsd }: Parameters<Budget['reserve']>[0]): Promise<Reservation> {
    this.#rests = this.#rests.filter(({ untilMs }) => Date.now() < untilMs);
    const reserved = reservedOf([...this.#open], this.#rests, Date.now());
    this.#check('client', { spentMicroUsd: this.#spent, ...reserved }, maxMicroUsd);
    if (flow !== 'card') this.#check('unconfirmed', { unconfirmedMicroUsd: this.#unconfirmed }, maxMicroUsd);
    const purchase: { maxMicroUsd: bigint; pending?: PendingPurchase } = { maxMicroUsd };
    this.#open.add(purchase);
    return {
      record: async (pending) => {
        purchase.pending = pending;
      },
      settle: async (chargedMicroUsd, known = {}) => {
        this.#open.delete(purchase);
        this.#spent += chargedMicroUsd;
        if (known.balance) {
          const openMicroUsd = reservedOf([...this.#open], [], 0).reservedMicroUsd;
          this.#spent += uncountedDrop(this.#accounts, chargedMicroUsd, known.balance, openMicroUsd);
        }
        const rest = signedRest(purchase.pending, chargedMicroUsd, known);
        if (!rest) return;
        this.#unconfirmed += rest.microUsd;
        this.#rests = [...this.#rests, rest];
      },
    };
  }

  #check(scope: 'client' | 'unconfirmed', used: UsedCap, wantedMicroUsd: bigint): void {
    const { usedMicroUsd, ...cap } = capOf(scope, this.#limit, used);
    if (usedMicroUsd + wantedMicroUsd > this.#limit) throw new OverCapError({ ...cap, wantedMicroUsd });
  }
}

export function capOf(scope: OverCapError['scope'], limitMicroUsd: bigint, used: UsedCap) {
  const { spentMicroUsd = 0n, reservedMicroUsd = 0n, unconfirmedMicroUsd = 0n } = used;
  const usedMicroUsd = spentMicroUsd + reservedMicroUsd + unconfirmedMicroUsd;
  const leftMicroUsd = limitMicroUsd > usedMicroUsd ? limitMicroUsd - usedMicroUsd : 0n;
  return { scope, limitMicroUsd, usedMicroUsd, leftMicroUsd, used };
}

export async function reserveAll(
  budgets: readonly Budget[],
  purchase: Parameters<Budget['reserve']>[0],
): Promise<Reservation> {
  const reservations: Reservation[] = [];
  const settle = async (chargedMicroUsd: bigint, known?: KnownOfPurchase) => {
    for (const reservation of reservations) await reservation.settle(chargedMicroUsd, known);
  };
  try {
    for (const budget of budgets) reservations.push(await budget.reserve(purchase));
  } catch (error) {
    await settle(0n, { isUnsent: true });
    throw error;
  }
  return {
    record: async (pending) => {
      for (const reservation of reservations) await reservation.record(pending);
    },
    settle,
  };
}

export interface WatchedAccount {
  /** The lowest balance that the counted charges explain. */
  readonly expectedMicroUsd: bigint;
  /** The lowest balance that the service reported while purchases were open. */
  readonly lowestMicroUsd?: bigint;
}

/**
 * Micro-USD to count beyond the reported charge of a card purchase. That charge is unsigned, so a larger drop of the
 * balance counts instead. Updates `accounts`.
 * @param openMicroUsd the most that open purchases may have taken by now
 */
export function uncountedDrop(
  accounts: Map<string, WatchedAccount>,
  chargedMicroUsd: bigint,
  { account, balanceMicroUsd }: AccountBalance,
  openMicroUsd: bigint,
): bigint {
  const known = accounts.get(account);
  const expected = known ? known.expectedMicroUsd - chargedMicroUsd : balanceMicroUsd;
  const missing = expected - openMicroUsd - balanceMicroUsd;
  const uncounted = missing > 0n ? missing : 0n;
  // Responses can arrive out of order. Without a top-up the lowest balance is the newest.
  const lowest = known?.lowestMicroUsd;
  const newest = lowest !== undefined && lowest < balanceMicroUsd ? lowest : balanceMicroUsd;
  accounts.set(
    account,
    openMicroUsd === 0n
      ? { expectedMicroUsd: newest }
      : { expectedMicroUsd: expected - uncounted, lowestMicroUsd: newest },
  );
  return uncounted;
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
