import { join } from 'node:path';
import type { Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { UsageError } from '../../lib/arguments.ts';
import { isLoopback } from '../../lib/loopback.ts';
import { RUN_SPEECHGATE } from '../../lib/run-speechgate.ts';
import { type BudgetLimits, type FileBudget, openFileBudget } from '../budget/file-budget.ts';
import {
  cardCredits,
  directX402,
  type Flow,
  PaymentRequiredError,
  prepaid,
  Speechgate,
  UnreachableError,
} from '../client/index.ts';
import { lackOfMoney } from '../client/money-text.ts';
import { CommandError, EXIT } from './failure.ts';
import type { CommandProcess } from './output.ts';
import { SavedPurchases, type SentPurchase } from './saved-purchases.ts';
import { clientOptions, readSettings, type Settings } from './settings.ts';

const SANDBOX_REMEDY =
  'Restart the sandbox: it refills its wallet if less than 5 USDC are left. Do not send real USDC to this wallet';
const BUDGET_FILE = 'budget.jsonl';

export interface Caller {
  readonly client: Speechgate;
  readonly budget: FileBudget;
  readonly settings: Settings;
  readonly saved: SavedPurchases;
  readonly caps: BudgetLimits;
}

export interface CallerOptions {
  readonly pay?: Flow | undefined;
  readonly maxMicroUsd?: bigint | undefined;
  readonly caps?: BudgetLimits;
  /** How long a purchase is retried; default: as the client does. */
  readonly timeoutMs?: number;
  readonly sent?: SentPurchase;
}

/** Opens the budget, which all processes of this user share, and closes it after the work. */
export async function withBudget<T>(
  folder: string,
  limits: BudgetLimits,
  work: (budget: FileBudget) => Promise<T>,
): Promise<T> {
  const budget = await openFileBudget(join(folder, BUDGET_FILE), limits);
  try {
    return await work(budget);
  } finally {
    await budget.close();
  }
}

/** Opens the budget and a client, and closes the budget after the work. Without account or wallet only free requests work. */
export async function withCaller<T>(
  { env }: Pick<CommandProcess, 'env'>,
  { pay, maxMicroUsd, caps, timeoutMs, sent }: CallerOptions,
  work: (caller: Caller) => Promise<T>,
): Promise<T> {
  const settings = await readSettings(env, pay);
  const limits = { ...settings.caps, ...caps };
  return withBudget(settings.folder, limits, async (budget) => {
    const way = paymentWayOf(settings);
    const client = new Speechgate({
      ...(await clientOptions(env, settings.baseUrl, settings.trust)),
      budget: sent?.watch(budget) ?? budget,
      ...(way && { pay: way }),
      ...(maxMicroUsd !== undefined && { maxPerRequestMicroUsd: maxMicroUsd }),
      ...(timeoutMs !== undefined && { timeoutMs }),
    });
    const perCallMicroUsd =
      maxMicroUsd === undefined ? limits.perCallMicroUsd : least(maxMicroUsd, limits.perCallMicroUsd);
    const saved = new SavedPurchases(settings.folder);
    const caller = { client, budget, settings, saved, caps: { ...limits, perCallMicroUsd } };
    return orStartSandbox(settings.baseUrl, work(caller));
  });
}

/** An unreachable service on this machine is usually a sandbox that was stopped. */
export async function orStartSandbox<T>(baseUrl: string, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (cause) {
    if (!(cause instanceof UnreachableError && isLoopback(new URL(baseUrl).hostname))) throw cause;
    const fix = `Start the service. If it is a sandbox, run ${RUN_SPEECHGATE} sandbox, then speechgate connect --sandbox.`;
    const message = `No service responds at ${baseUrl}. ${fix} You were not charged for this request.`;
    throw new UnreachableError(message, { cause });
  }
}

const least = (one: bigint, other = one): bigint => (other < one ? other : one);

function paymentWayOf({ flow, account, walletKey }: Settings) {
  if (flow === 'card') return account === undefined ? undefined : cardCredits(account);
  if (walletKey === undefined) return undefined;
  const wallet = privateKeyToAccount(walletKey);
  return flow === 'direct' ? directX402(wallet) : prepaid(wallet);
}

export function assertCanPay({ settings, client }: Caller): void {
  if (settings.flow === 'card') {
    if (settings.account !== undefined) return;
    const topUpUrl = client.topUpLink({});
    const message = `No credit account is set for this service, so nothing was bought. Buy credit with: speechgate top-up (or ${topUpUrl})`;
    throw new CommandError({ code: 'NO_ACCOUNT', exit: EXIT.noMoney, message, topUpUrl });
  }
  assertWallet(settings);
  assertTrust(settings);
}

export function assertWallet({ walletKey }: Settings): Hex {
  if (walletKey !== undefined) return walletKey;
  throw new UsageError(
    'No wallet is set for this service, so nothing was signed. Run speechgate connect --wallet create, or --wallet FILE for your own.',
  );
}

export function assertTrust({ trust }: Settings): void {
  if (trust.length > 0) return;
  throw new UsageError(
    'No public key of the service is trusted, so nothing was signed. Get the key from its operator, then run speechgate connect --trust FILE or --fingerprint TEXT.',
  );
}

/** Says how to add money if that is why the service refused. */
export async function paid<T>(purchase: Promise<T>, { node }: Pick<Settings, 'node'>): Promise<T> {
  try {
    return await purchase;
  } catch (error) {
    const lack = error instanceof PaymentRequiredError && lackOfMoney(error);
    if (!lack) throw error;
    const { code, status, details, traceId, missingMicroUsd, topUpUrl } = error;
    const page = topUpUrl === null ? '' : ` (or ${topUpUrl})`;
    // The chain of a sandbox has the id of Base.
    const isLocalChain = error.wallet !== null && node !== undefined && isLoopback(new URL(node).hostname);
    const remedy = isLocalChain ? SANDBOX_REMEDY : lack.remedy;
    const message = `${lack.problem} You were not charged. ${remedy}${page}`;
    throw new CommandError({ code, exit: EXIT.noMoney, message, status, details, traceId, missingMicroUsd, topUpUrl });
  }
}
