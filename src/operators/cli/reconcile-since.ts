import type { Config } from '../../config/config.ts';
import type { Database } from '../../db/database.ts';
import { faultOf, isConnectionError, isDatabaseFault } from '../../db/database-errors.ts';
import { type BookedMoney, bookedAfter, newestPosition } from '../../ledger/booked.ts';
import { MAX_EXPIRY_SECONDS } from '../../ledger/wallet-holds.ts';
import { UsageError } from '../../lib/arguments.ts';
import { printable, printableJson, tableLines } from '../../lib/printable.ts';
import { testPoint } from '../../lib/test-point.ts';
import type { DatedTransfer } from '../../payments/x402/chain.ts';
import type { PaymentPurpose } from '../../payments/x402/payment.ts';
import type { OpenPayments } from '../../payments/x402/resolver.ts';
import { RpcError } from '../../payments/x402/rpc.ts';
import { type AuthorizedTransfer, recordTransfer } from '../../payments/x402/unrecorded-transfers.ts';
import { catchUp } from '../../reconcile/catch-up.ts';
import {
  type FailedTransfer,
  type InferredPurpose,
  inferPurpose,
  type Received,
  settleReceived,
} from '../../reconcile/received.ts';
import type { TurnResult } from '../../reconcile/reconciler.ts';
import type { ReconcilerRunner } from '../../reconcile/runner.ts';
import { isOutsideError } from '../audit/outside.ts';
import { type CommandContext, EXIT_FAILED, EXIT_UNANSWERED, ExitError, printLines } from './command.ts';

export interface Decision {
  readonly transaction: string;
  readonly logIndex: number | undefined;
  readonly purpose: PaymentPurpose;
}

export interface SinceOptions {
  readonly since: Date;
  readonly bookPlain: boolean;
  readonly decisions: readonly Decision[];
  readonly json: boolean;
}

interface Parts {
  readonly config: Config;
  readonly db: Database;
  readonly x402: OpenPayments | undefined;
  readonly runner: ReconcilerRunner;
}

const NOBODY_KNOWS = [
  "This can't be recovered from the card processor or the chain (from --since until the old database was lost):",
  '- spending of card credit and prepaid balances: callers got the speech, but the restored balances are too high.',
  '  Your log has a line for each charge, with flow, chargedMicroUsd and traceId;',
  `- nonces of these prepaid requests: a signature can be used again until ${MAX_EXPIRY_SECONDS} s after it was made;`,
  '- accepted jobs and their results: callers get 404, and must pay for a new job;',
  '- identifiers of direct payments and deposits: a repeated request gets 409 and no audio, but its payment is booked;',
  '- feedback, paid quotes, and changes by operators.',
];

const HOW_TO_DECIDE = [
  'Decide what each of these transfers paid for. --deposit TX[:LOG] credits the payer, --speech TX[:LOG] books revenue.',
  '--book books those whose amount can only be a deposit, or only a price in the catalog. Use it only if your payees',
  'receive no other payments. Your log has the flow and chargedMicroUsd of each payment.',
];

export async function reconcileSince(context: CommandContext, parts: Parts, options: SinceOptions): Promise<number> {
  try {
    return await run(context, parts, options);
  } catch (error) {
    if (!(error instanceof RpcError) && !isDatabaseFault(error)) throw error;
    const reason = error instanceof RpcError ? error.message : `The database failed: ${printable(reasonOf(error))}.`;
    throw new ExitError(
      `${reason}\nTransfers that were already booked stay booked. Fix the cause if it lasts, then run the command again: it books none twice.`,
      EXIT_UNANSWERED,
    );
  }
}

async function run(
  context: CommandContext,
  { config, db, x402, runner }: Parts,
  options: SinceOptions,
): Promise<number> {
  const newest = await newestPosition(db);
  // Before the reconcilers: they release reservations of dead processes, some of which were settled after the backup.
  const received = config.x402 && x402 && (await settleReceived({ db, payments: x402, ...config.x402 }, options.since));
  const unrecorded = received?.unrecorded ?? [];
  // A repeated command may name transfers that an earlier run booked.
  const nameable = [...unrecorded, ...(received?.known ?? [])];
  const stray = options.decisions.find((decision) => !nameable.some((transfer) => isMeant(decision, transfer)));
  if (stray) {
    const place = stray.logIndex === undefined ? stray.transaction : `${stray.transaction}:${stray.logIndex}`;
    throw new UsageError(
      `${place} contains no authorized transfer to a payee after --since. Nothing was booked: correct the transaction hash.`,
    );
  }
  const undecided: AuthorizedTransfer[] = [];
  const failed: FailedTransfer[] = [...(received?.failed ?? [])];
  for (const transfer of unrecorded) {
    const purpose = purposeOf(transfer, config, options);
    if (purpose === undefined) undecided.push(transfer);
    else {
      try {
        await recordTransfer(db, (config.x402 as NonNullable<Config['x402']>).asset, transfer, purpose);
      } catch (error) {
        if (isConnectionError(error)) throw error;
        failed.push({ transfer, error });
      }
    }
    testPoint('unrecorded transfer decided');
  }
  const results = config.card ? await catchUp(db, runner, options.since) : await runner.turn();
  const exitCode = exitCodeOf(results);
  const booked = await bookedAfter(db, newest);
  const found = { booked, received, undecided, failed };
  printLines(
    context,
    options.json
      ? [jsonOf(results, found, config)]
      : [
          ...turnLines(results, config),
          ...(exitCode !== 0 ? ['A reconciler FAILED. Fix its error above first, then run this command again.'] : []),
          ...foundLines(found, config),
        ],
  );
  if (failed.length > 0) return EXIT_FAILED;
  return exitCode === 0 && undecided.length > 0 ? EXIT_UNANSWERED : exitCode;
}

const placeOf = ({ transaction, logIndex }: DatedTransfer): string => `${transaction}:${logIndex}`;

/** Reports the error code only, not texts of database or node. */
const reasonOf = (error: unknown): string =>
  (error instanceof RpcError ? error.message : faultOf(error as Error)) ?? 'unknown';

const isMeant = ({ transaction, logIndex }: Decision, transfer: DatedTransfer): boolean =>
  transaction === transfer.transaction && (logIndex === undefined || logIndex === transfer.logIndex);

function purposeOf(
  transfer: AuthorizedTransfer,
  { catalog }: Config,
  { decisions, bookPlain }: SinceOptions,
): PaymentPurpose | undefined {
  const decided = decisions.find((decision) => isMeant(decision, transfer));
  if (decided) return decided.purpose;
  const meaning = inferPurpose(transfer.amount, catalog);
  return bookPlain && (meaning === 'deposit' || meaning === 'speech') ? meaning : undefined;
}

interface Found {
  readonly booked: readonly BookedMoney[];
  readonly received: Received | undefined;
  readonly undecided: readonly AuthorizedTransfer[];
  readonly failed: readonly FailedTransfer[];
}

function foundLines({ booked, received, undecided, failed }: Found, { catalog }: Config): string[] {
  const lines = [`\nBooked by this run: ${booked.length}`, ...tableLines(booked)];
  if (received) {
    const { known, open, others } = received;
    const meanings = (transfer: DatedTransfer) => inferPurpose(transfer.amount, catalog);
    lines.push(
      `\nTransfers to the payees on the chain that belong to settled payments: ${known.length}`,
      ...transferLines(
        `Transfers whose payment is not settled yet, or has another amount or payee than the transfer (run speechgate admin payments): ${open.length}`,
        open,
      ),
      ...transferLines(`Transfers without an authorization, which do not pay this service: ${others.length}`, others),
      ...failedLines(failed),
      ...transferLines(`Transfers that match no payment in this database: ${undecided.length}`, undecided, meanings),
      ...(undecided.length > 0 ? HOW_TO_DECIDE : []),
    );
  }
  return [...lines, '', ...NOBODY_KNOWS];
}

function failedLines(failed: readonly FailedTransfer[]): string[] {
  if (failed.length === 0) return [];
  return [
    `FAILED: transfers that could not be booked: ${failed.length}. Fix the cause at the end of each line, then run this command again.`,
    ...failed.map(({ transfer, error }) => printable(`${placeOf(transfer)} ${reasonOf(error)}`)),
  ];
}

function transferLines(
  heading: string,
  transfers: readonly DatedTransfer[],
  meaning: (transfer: DatedTransfer) => InferredPurpose | '' = () => '',
): string[] {
  if (transfers.length === 0) return [];
  const rows = transfers.map((each) => ({
    at: each.at,
    amountMicroUsd: each.amount,
    payer: each.payer,
    canBe: meaning(each),
    transfer: placeOf(each),
  }));
  return [heading, ...tableLines(rows)];
}

function jsonOf(
  results: readonly TurnResult[],
  { booked, received, undecided, failed }: Found,
  { catalog }: Config,
): string {
  const shown = ({ at, amount, payer, payTo, transaction, logIndex }: DatedTransfer) => ({
    at,
    amountMicroUsd: amount,
    payer,
    payTo,
    transaction,
    logIndex,
    canBe: inferPurpose(amount, catalog),
  });
  return printableJson({
    reconcilers: results.map(({ name, outcome, count }) => ({ name, outcome, count })),
    booked,
    transfers: received && {
      known: received.known.map(shown),
      open: received.open.map(shown),
      others: received.others.map(shown),
      undecided: undecided.map(shown),
      failed: failed.map(({ transfer, error }) => ({ ...shown(transfer), reason: reasonOf(error) })),
    },
    nobodyKnows: NOBODY_KNOWS,
  });
}

/** What is printed of a turn of the reconcilers. */
export const turnLines = (results: readonly TurnResult[], { card, x402 }: Config): string[] => [
  ...results.flatMap((result) => [
    `${result.name.padEnd(18)} ${describe(result)}`,
    ...(result.problems ?? []).map((problem) => `${' '.repeat(19)}${printable(problem)}`),
  ]),
  ...(card ? [] : ['Card payments were not reconciled: STRIPE_SECRET_KEY is unset.']),
  ...(x402?.rpcUrls ? [] : ['USDC payments were not reconciled: X402_PAY_TO or X402_RPC_URL is unset.']),
];

export function exitCodeOf(results: readonly TurnResult[]): number {
  const failed = results.filter(({ outcome }) => outcome === 'failed');
  if (failed.length === 0) return 0;
  const isUnanswered = failed.every(({ error }) => isOutsideError(error) || isConnectionError(error));
  return isUnanswered ? EXIT_UNANSWERED : EXIT_FAILED;
}

function describe({ outcome, count, error }: TurnResult): string {
  if (outcome === 'skipped') return 'skipped: another process is running this reconciler';
  if (outcome === 'done') return `${count} done`;
  return printable(`FAILED after ${count} done: ${faultOf(error as Error)}`);
}
