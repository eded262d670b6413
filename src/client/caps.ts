import type { Budget, Reservation } from './budget.ts';
import { OverCapError } from './errors.ts';

/** Refuses what may cost more. @throws OverCapError */
export function checkCall(maxMicroUsd: bigint, limits: readonly (bigint | undefined)[]): void {
  for (const limit of limits) {
    if (limit !== undefined && maxMicroUsd > limit) {
      throw new OverCapError({ scope: 'call', limitMicroUsd: limit, leftMicroUsd: limit, wantedMicroUsd: maxMicroUsd });
    }
  }
}

/** What one client may spend in its life, kept in memory. */
export class TotalCap implements Budget {
  readonly #limit: bigint;
  #left: bigint;

  constructor(limitMicroUsd: bigint) {
    this.#limit = limitMicroUsd;
    this.#left = limitMicroUsd;
  }

  async reserve({ maxMicroUsd }: { readonly maxMicroUsd: bigint }): Promise<Reservation> {
    if (maxMicroUsd > this.#left) {
      throw new OverCapError({
        scope: 'client',
        limitMicroUsd: this.#limit,
        leftMicroUsd: this.#left,
        wantedMicroUsd: maxMicroUsd,
      });
    }
    this.#left -= maxMicroUsd;
    return {
      record: async () => {},
      settle: async (chargedMicroUsd) => {
        this.#left += maxMicroUsd - chargedMicroUsd;
      },
    };
  }
}

/** Sets the purchase aside in every budget, or in none. */
export async function reserveAll(
  budgets: readonly Budget[],
  purchase: Parameters<Budget['reserve']>[0],
): Promise<Reservation> {
  const reservations: Reservation[] = [];
  const settle = async (chargedMicroUsd: bigint) => {
    for (const reservation of reservations) await reservation.settle(chargedMicroUsd);
  };
  try {
    for (const budget of budgets) reservations.push(await budget.reserve(purchase));
  } catch (error) {
    await settle(0n);
    throw error;
  }
  return {
    record: async (pending) => {
      for (const reservation of reservations) await reservation.record(pending);
    },
    settle,
  };
}
