import { formatUsd } from '../../lib/money.ts';
import type { PaymentRequiredError } from './errors.ts';

/** The reasons of a 402 that money mends, each with what is said of it. */
const LACKS: Readonly<Record<string, string | undefined>> = {
  no_account: undefined,
  insufficient_funds: undefined,
  invalid_exact_evm_insufficient_balance: undefined,
  never_deposited: undefined,
  unknown_account: 'The service does not know this credit account.',
  account_indebted: 'A refund or dispute left this account in debt, which the next purchase pays first.',
};
const NETWORKS: Readonly<Record<string, string>> = { 'eip155:8453': 'Base', 'eip155:84532': 'Base Sepolia' };

export interface LackOfMoney {
  readonly problem: string;
  /** A sentence without its full stop. It never contains the account's bearer id. */
  readonly remedy: string;
}

/** What lacks and how to add it, if money is why the service refused; for all other reasons its own words count. */
export function lackOfMoney({ details, topUpUrl, wallet, missingMicroUsd }: PaymentRequiredError): LackOfMoney | null {
  const reason = String(details?.reason ?? details?.error);
  if (!Object.hasOwn(LACKS, reason)) return null;
  const missing = missingMicroUsd === null ? '' : `: ${formatUsd(missingMicroUsd)} USD is missing`;
  const problem = LACKS[reason] ?? `Insufficient funds${missing}.`;
  if (topUpUrl !== null) return { problem, remedy: 'Run: speechgate top-up' };
  if (!wallet) return { problem, remedy: 'Run: speechgate deposit 1.00' };
  const { address, network, amountMicroUsd } = wallet;
  const name = NETWORKS[network];
  const place = name ? `${name} (${network})` : network;
  const remedy = `Send USDC on ${place} to the wallet ${address}: it must hold at least ${formatUsd(amountMicroUsd)} USDC`;
  return { problem, remedy };
}
