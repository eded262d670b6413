import { formatUsd } from '../../lib/money.ts';
import type { OverCapError, PaymentRequiredError } from './errors.ts';

/** The reasons of a 402 that money mends, each with what is said of it. */
const LACKS: Readonly<Record<string, string | undefined>> = {
  no_account: undefined,
  insufficient_funds: undefined,
  invalid_exact_evm_insufficient_balance: undefined,
  never_deposited: undefined,
  unknown_account: 'This credit account does not exist at the service.',
  account_indebted:
    'A refund or dispute left this credit account in debt. The next purchase of credit pays the debt first.',
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
  if (!wallet) {
    const isMore = missingMicroUsd !== null && missingMicroUsd > 1_000_000n;
    return { problem, remedy: `Run: speechgate deposit ${isMore ? formatUsd(missingMicroUsd) : '1.00'}` };
  }
  const { address, network, amountMicroUsd } = wallet;
  const name = NETWORKS[network];
  const place = name ? `${name} (${network})` : network;
  const remedy = `Send USDC on ${place} to the wallet ${address}: it must hold at least ${formatUsd(amountMicroUsd)} USDC`;
  return { problem, remedy };
}

/** Micro-USD that count toward a cap. */
export interface UsedCap {
  readonly spentMicroUsd?: bigint;
  /** Purchases that are not settled, and the rest of signed amounts that can still be charged. */
  readonly reservedMicroUsd?: bigint;
  /** When the last signature of these expires; null if none of them has one. */
  readonly reservedUntil?: Date | null;
  /** Signed amounts that only the service reports as not charged. */
  readonly unconfirmedMicroUsd?: bigint;
}

/** Options of `speechgate connect` that raise a cap, by its scope. */
export const CAP_OPTIONS = {
  call: '--max-per-call',
  client: '--max-total',
  day: '--max-per-day',
  total: '--max-total',
  unconfirmed: '--max-per-day or --max-total',
} as const;

const CAPS = {
  call: 'one call',
  client: 'this program',
  day: 'today (UTC)',
  total: 'all purchases',
  unconfirmed: 'signed payments that the service reports as not charged',
};

/** A sentence on price and cap, for people; how to raise the cap differs by program. */
export function overCapText({ scope, wantedMicroUsd, leftMicroUsd, limitMicroUsd, used }: OverCapError): string {
  const [price, left, limit] = [wantedMicroUsd, leftMicroUsd, limitMicroUsd].map(formatUsd);
  const rest = `only ${left} USD of the cap of ${limit} USD for ${CAPS[scope]} is left`;
  return `This speech may cost ${price} USD, but ${rest}${usedText(used, (each) => `${formatUsd(each)} USD`)}.`;
}

/** Follows the words for what is left of a cap; empty if nothing is used. */
export function usedText(used: UsedCap, format: (microUsd: bigint) => string): string {
  const { spentMicroUsd = 0n, reservedMicroUsd = 0n, reservedUntil, unconfirmedMicroUsd = 0n } = used;
  const parts = [
    spentMicroUsd > 0n && `${format(spentMicroUsd)} is spent`,
    reservedMicroUsd > 0n &&
      `${format(reservedMicroUsd)} is reserved for purchases that ${stillCharged(reservedUntil)}`,
    unconfirmedMicroUsd > 0n &&
      `${format(unconfirmedMicroUsd)} was signed for purchases that the service reports as not charged`,
  ].filter(Boolean);
  return parts.length === 0 ? '' : `: ${parts.join(', ')}`;
}

export const stillCharged = (until: Date | null | undefined): string =>
  `may still be charged${until ? `, those with a signature until ${until.toISOString().replace(/\.\d+Z$/, 'Z')}` : ''}`;
