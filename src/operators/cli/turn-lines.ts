import type { Config } from '../../config/config.ts';
import { faultOf } from '../../db/database-errors.ts';
import { printable } from '../../lib/printable.ts';
import type { TurnResult } from '../../reconcile/reconciler.ts';

/** What is printed of a turn of the reconcilers. */
export const turnLines = (results: readonly TurnResult[], { card, x402 }: Config): string[] => [
  ...results.flatMap((result) => [
    `${result.name.padEnd(18)} ${describe(result)}`,
    ...(result.problems ?? []).map((problem) => `${' '.repeat(19)}${printable(problem)}`),
  ]),
  ...(card ? [] : ['Card payment is off: STRIPE_SECRET_KEY is unset.']),
  ...(x402?.rpcUrls ? [] : ['Direct payment in USDC is off: X402_PAY_TO or X402_RPC_URL is unset.']),
];

export const hasFailed = (results: readonly TurnResult[]): boolean =>
  results.some(({ outcome }) => outcome === 'failed');

function describe({ outcome, count, error }: TurnResult): string {
  if (outcome === 'skipped') return 'skipped: another process is running it';
  if (outcome === 'done') return `${count} done`;
  return printable(`FAILED after ${count} done: ${faultOf(error as Error)}`);
}
