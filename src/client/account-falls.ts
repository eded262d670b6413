import type { AccountBalance } from './budget.ts';

interface Account {
  /** What the account has at least, by what was counted as charged. */
  expected: bigint;
  /** The lowest balance that was told while purchases were open. */
  lowest: bigint | undefined;
}

/**
 * Watches what the service says is left of credit accounts: where that falls by more than what was counted as charged, the
 * fall counts. Nothing vouches for the charge of a card purchase.
 */
export class AccountFalls {
  readonly #accounts = new Map<string, Account>();

  /**
   * What has to be counted beyond the charge, in micro-USD.
   * @param openMicroUsd what purchases that are still open may have taken by now
   */
  settle(chargedMicroUsd: bigint, { account, balanceMicroUsd }: AccountBalance, openMicroUsd: bigint): bigint {
    const known = this.#accounts.get(account);
    const expected = known ? known.expected - chargedMicroUsd : balanceMicroUsd;
    const missing = expected - openMicroUsd - balanceMicroUsd;
    const beyond = missing > 0n ? missing : 0n;
    // Answers may overtake each other: the lowest balance is the newest, until credit was bought.
    const lowest = known?.lowest !== undefined && known.lowest < balanceMicroUsd ? known.lowest : balanceMicroUsd;
    const isQuiet = openMicroUsd === 0n;
    this.#accounts.set(account, {
      expected: isQuiet ? lowest : expected - beyond,
      lowest: isQuiet ? undefined : lowest,
    });
    return beyond;
  }

  /** What each account is expected to have, to be told to `settle` of another watch with no charge. */
  balances(): readonly AccountBalance[] {
    return [...this.#accounts].map(([account, { expected }]) => ({ account, balanceMicroUsd: expected }));
  }
}
