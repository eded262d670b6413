import { join } from 'node:path';
import { privateKeyToAccount } from 'viem/accounts';
import { type BudgetLimits, type FileBudget, openFileBudget } from '../../budget/file-budget.ts';
import { cardCredits, directX402, prepaid, Speechgate } from '../../client/index.ts';
import type { Flow } from '../../client/pending-purchase.ts';
import { followedTrust } from './followed-trust.ts';
import { insecureHttp } from './insecure-http.ts';
import { type Watcher, watched } from './kept-purchases.ts';
import { readSettings, type Settings } from './settings.ts';

export const BUDGET_FILE = 'budget.jsonl';

/** What a command works with that spends a caller's money. */
export interface Caller {
  readonly client: Speechgate;
  /** The one budget of this user: every process that spends shares it. */
  readonly budget: FileBudget;
  readonly baseUrl: string;
  readonly flow: Flow;
  readonly settings: Settings;
  /** Under which it spends. */
  readonly caps: BudgetLimits;
}

/** What a command says beside the settings. */
export interface CallerOptions {
  readonly pay?: Flow | undefined;
  /** Of one purchase, beside the settings' caps. */
  readonly maxMicroUsd?: bigint | undefined;
  /** They go before the settings'. */
  readonly caps?: BudgetLimits;
  readonly watcher?: Watcher;
}

/**
 * The client for the caller's settings, under the caller's budget. Without an account or a wallet the client can do what
 * is free.
 * @throws UsageError which says what to set, or mend
 */
export async function openCaller(options: CallerOptions = {}): Promise<Caller> {
  const { maxMicroUsd, watcher } = options;
  const settings = await readSettings(process.env, options.pay);
  const { baseUrl, flow, trust, folder } = settings;
  const limits = { ...settings.caps, ...options.caps };
  const budget = await openFileBudget(join(folder, BUDGET_FILE), limits);
  const way = wayToPay(settings);
  const client = new Speechgate({
    baseUrl,
    budget: watcher ? watched(budget, watcher) : budget,
    ...(await insecureHttp(folder, baseUrl)),
    ...(await followedTrust(folder, baseUrl, trust)),
    ...(way && { pay: way }),
    ...(maxMicroUsd !== undefined && { maxPerRequestMicroUsd: maxMicroUsd }),
  });
  const caps =
    maxMicroUsd === undefined ? limits : { ...limits, perCallMicroUsd: least(maxMicroUsd, limits.perCallMicroUsd) };
  return { client, budget, baseUrl, flow, settings, caps };
}

const least = (one: bigint, other = one): bigint => (other < one ? other : one);

function wayToPay({ flow, account, walletKey }: Settings) {
  if (flow === 'card') return account === undefined ? undefined : cardCredits(account);
  if (walletKey === undefined) return undefined;
  const wallet = privateKeyToAccount(walletKey);
  return flow === 'direct' ? directX402(wallet) : prepaid(wallet);
}
