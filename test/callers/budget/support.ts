import { join } from 'node:path';
import type { Test } from 'tap';
import { type BudgetLimits, type FileBudget, openFileBudget } from '../../../src/callers/budget/file-budget.ts';
import type { PendingPurchase } from '../../../src/callers/client/pending-purchase.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

/** Where a budget of this test alone may be. */
export async function budgetPath(t: Test): Promise<string> {
  return join(await temporaryFolder(t), 'budget.jsonl');
}

export async function openBudget(
  t: Test,
  path: string,
  limits: BudgetLimits = {},
  now?: () => number,
): Promise<FileBudget> {
  const budget = await openFileBudget(path, limits, now);
  t.teardown(() => budget.close());
  return budget;
}

export const prepaid = (maxMicroUsd: bigint) => ({ flow: 'prepaid', maxMicroUsd }) as const;

/** A purchase that was about to leave. */
export const pendingOf = (identifier: string, changes: Partial<PendingPurchase> = {}): PendingPurchase => ({
  flow: 'prepaid',
  kind: 'speech',
  identifier,
  baseUrl: 'http://127.0.0.1:8080',
  method: 'POST',
  target: '/x402/tts',
  headers: { 'x-x402-nonce': identifier },
  body: '{"text":"Grüße"}',
  maxMicroUsd: '1',
  expiresAt: null,
  ...changes,
});

/** A service that tells of each purchase what the map has of its identifier; what it has not is unknown. */
export const serviceThatCharged = (charges: Readonly<Record<string, bigint>>) => ({
  resolveOutcome: async ({ identifier }: PendingPurchase) => {
    const chargedMicroUsd = charges[identifier];
    return chargedMicroUsd === undefined ? null : { chargedMicroUsd, speech: null };
  },
});

/** What each purchase of the spending process reserves. */
export const MAX_MICRO_USD = 100n;

/** What the service charges for a purchase of the spending process. */
export const chargeOf = (identifier: string): bigint => BigInt(`0x${identifier}`) % (MAX_MICRO_USD + 1n);
