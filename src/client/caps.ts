import { AccountFalls } from './account-falls.ts';
import type { Budget, KnownOfPurchase, Reservation } from './budget.ts';
import { OverCapError } from './errors.ts';
import type { Flow, PendingPurchase } from './pending-purchase.ts';
import { type SignedRest, signedRest } from './signed-rest.ts';

/** Refuses what may cost more. @throws OverCapError */
export function checkCall(maxMicroUsd: bigint, limits: readonly (bigint | undefined)[]): void {
  for (const limit of limits) {
    if (limit !== undefined && maxMicroUsd > limit) {
      throw new OverCapError({ scope: 'call', limitMicroUsd: limit, leftMicroUsd: limit, wantedMicroUsd: maxMicroUsd });
    }
  }
}

/**
 * What one client may spend in its life, kept in memory. What was signed and, by the service's word, not charged has a bound
 * of the same size.
 */
export class TotalCap implements Budget {
  readonly #limit: bigint;
  readonly #falls = new AccountFalls();
  #spent = 0n;
  #reserved = 0n;
  #unconfirmed = 0n;
  #rests: readonly SignedRest[] = [];

  constructor(limitMicroUsd: bigint) {
    this.#limit = limitMicroUsd;
  }

  async reserve(purchase: { readonly flow: Flow; readonly maxMicroUsd: bigint }): Promise<Reservation> {
    const { flow, maxMicroUsd } = purchase;
    this.#rests = this.#rests.filter(({ untilMs }) => Date.now() < untilMs);
    const held = this.#rests.reduce((sum, { microUsd }) => sum + microUsd, 0n);
    this.#check('client', this.#spent + this.#reserved + held, maxMicroUsd);
    if (flow !== 'card') this.#check('unconfirmed', this.#unconfirmed, maxMicroUsd);
    this.#reserved += maxMicroUsd;
    let pending: PendingPurchase | undefined;
    return {
      record: async (recorded) => {
        pending = recorded;
      },
      settle: async (chargedMicroUsd, known = {}) => {
        this.#reserved -= maxMicroUsd;
        this.#spent += chargedMicroUsd;
        if (known.balance) this.#spent += this.#falls.settle(chargedMicroUsd, known.balance, this.#reserved);
        const rest = signedRest(pending, chargedMicroUsd, known);
        if (!rest) return;
        this.#unconfirmed += rest.microUsd;
        this.#rests = [...this.#rests, rest];
      },
    };
  }

  #check(scope: 'client' | 'unconfirmed', used: bigint, wantedMicroUsd: bigint): void {
    if (used + wantedMicroUsd <= this.#limit) return;
    const leftMicroUsd = used < this.#limit ? this.#limit - used : 0n;
    throw new OverCapError({ scope, limitMicroUsd: this.#limit, leftMicroUsd, wantedMicroUsd });
  }
}

/** Sets the purchase aside in every budget, or in none. */
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
