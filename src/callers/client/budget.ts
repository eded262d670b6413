import { Book } from './book.ts';
import { OverCapError } from './errors.ts';
import type { Flow, PendingPurchase } from './pending-purchase.ts';

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
  /** Null if the response was lost. */
  readonly balanceMicroUsd: bigint | null;
}

export function checkCall(maxMicroUsd: bigint, limits: readonly (bigint | undefined)[]): void {
  for (const limit of limits) {
    if (limit !== undefined && maxMicroUsd > limit) {
      throw new OverCapError({ scope: 'call', limitMicroUsd: limit, leftMicroUsd: limit, wantedMicroUsd: maxMicroUsd });
    }
  }
}

/** Caps all purchases of one client, whatever the day. */
export function totalCap(limitMicroUsd: bigint): Budget {
  const book = new Book();
  return {
    reserve: async (purchase) => {
      const id = crypto.randomUUID();
      book.reserve({ id, owner: '', day: '', ...purchase }, [{ scope: 'client', limitMicroUsd }], Date.now());
      return {
        record: async (pending) => book.record(id, pending),
        settle: async (chargedMicroUsd, known = {}) => book.settle(id, chargedMicroUsd, known, Date.now()),
      };
    },
  };
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
