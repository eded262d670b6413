import type { Database } from '../db/database.ts';
import { faultOf, isAway, isDatabaseFault } from '../db/database-errors.ts';
import { type BookedMoney, bookedAfter, newestTransfer } from '../ledger/booked.ts';
import { MAX_EXPIRY_SECONDS } from '../ledger/wallets.ts';
import { testPoint } from '../lib/test-point.ts';
import { catchUp } from '../reconcile/catch-up.ts';
import { type Meaning, meaningOf } from '../reconcile/meaning.ts';
import { type FailedTransfer, type Received, settleReceived } from '../reconcile/received.ts';
import type { TurnResult } from '../reconcile/reconciler.ts';
import type { ReconcilerRunner } from '../reconcile/runner.ts';
import type { Config } from '../settings/config.ts';
import type { OpenPayments } from '../x402/open-payments.ts';
import type { PaymentPurpose } from '../x402/payment.ts';
import type { DatedTransfer } from '../x402/received-transfers.ts';
import { RpcError } from '../x402/rpc.ts';
import { type AuthorizedTransfer, recordTransfer } from '../x402/unrecorded-transfers.ts';
import { EXIT_USAGE } from './arguments.ts';
import { printable, printableJson } from './printable.ts';
import type { Decision, SinceOptions } from './reconcile-options.ts';
import { printableLine } from './table-line.ts';

const EXIT_FAILED = 1;
/** Everything was asked, and there are transfers that the operator has to decide on. */
const EXIT_UNDECIDED = 2;
interface Parts {
  readonly config: Config;
  readonly db: Database;
  readonly x402: OpenPayments | undefined;
  readonly runner: ReconcilerRunner;
  /** Prints what the reconcilers have done; tells the exit code. */
  print(results: readonly TurnResult[]): 0 | 1;
}

const NOBODY_KNOWS = [
  'What neither processor nor chain can tell, of the time between that moment and the end of the old database:',
  '- what was spent of card credit and prepaid balances: the speech is delivered, and the money is in the balances again.',
  '  The lines of your log have each charge: flow, chargedMicroUsd, traceId;',
  `- the nonces of these prepaid requests: a signature is good again until ${MAX_EXPIRY_SECONDS} s after it was made;`,
  '- jobs that were accepted, and the results of those that were: their callers get 404, and pay for a new one;',
  '- the identifiers of direct payments and deposits: a repetition gets 409, and no audio; its money is booked all the same;',
  '- feedback, quotes that were paid, and what operators have changed.',
];

/** Finds what processor and chain know and a restored database does not, books what is certain, and prints the rest. */
export async function reconcileSince(parts: Parts, options: SinceOptions): Promise<number> {
  try {
    return await run(parts, options);
  } catch (error) {
    if (!(error instanceof RpcError) && !isDatabaseFault(error)) throw error;
    console.error(
      error instanceof RpcError ? error.message : `The database can't be used: ${printable(reasonOf(error))}.`,
    );
    console.error('What was booked stays booked. Run it again.');
    return EXIT_FAILED;
  }
}

async function run({ config, db, x402, runner, print }: Parts, options: SinceOptions): Promise<number> {
  const newest = await newestTransfer(db);
  // First, since a reconciler frees the reservations of dead processes: some of these were settled after the backup.
  const received = config.x402 && x402 && (await settleReceived({ db, payments: x402, ...config.x402 }, options.since));
  const unrecorded = received?.unrecorded ?? [];
  // What an earlier run has booked may be named again.
  const nameable = [...unrecorded, ...(received?.known ?? [])];
  const stray = options.decisions.find((decision) => !nameable.some((transfer) => isMeant(decision, transfer)));
  if (stray) {
    const place = stray.logIndex === undefined ? stray.transaction : `${stray.transaction}:${stray.logIndex}`;
    console.error(`No transfer to a payee that used an authorization since then is in ${place}.`);
    return EXIT_USAGE;
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
        if (isAway(error)) throw error;
        failed.push({ transfer, error });
      }
    }
    testPoint('unrecorded transfer decided');
  }
  const results = config.card ? await catchUp(db, runner, options.since) : await runner.turn();
  const booked = await bookedAfter(db, newest);
  if (options.json) printJson({ results, booked, received, undecided, failed }, config);
  else {
    if (print(results) === EXIT_FAILED) console.log('What failed is to be mended first; then run this again.');
    printFound({ booked, received, undecided, failed }, config);
  }
  if (failed.length > 0 || results.some(({ outcome }) => outcome === 'failed')) return EXIT_FAILED;
  return undecided.length > 0 ? EXIT_UNDECIDED : 0;
}

const placeOf = ({ transaction, logIndex }: DatedTransfer): string => `${transaction}:${logIndex}`;

/** Nothing of what the database or the node wrote beside its code. */
const reasonOf = (error: unknown): string =>
  (error instanceof RpcError ? error.message : faultOf(error as Error)) ?? 'unknown';

const isMeant = ({ transaction, logIndex }: Decision, transfer: DatedTransfer): boolean =>
  transaction === transfer.transaction && (logIndex === undefined || logIndex === transfer.logIndex);

/** What the operator has said that it was, or, where he leaves it to the amount, the only thing that it can have been. */
function purposeOf(
  transfer: AuthorizedTransfer,
  { catalog }: Config,
  { decisions, bookPlain }: SinceOptions,
): PaymentPurpose | undefined {
  const decided = decisions.find((decision) => isMeant(decision, transfer));
  if (decided) return decided.purpose;
  const meaning = meaningOf(transfer.amount, catalog);
  return bookPlain && (meaning === 'deposit' || meaning === 'speech') ? meaning : undefined;
}

interface Found {
  readonly booked: readonly BookedMoney[];
  readonly received: Received | undefined;
  readonly undecided: readonly AuthorizedTransfer[];
  readonly failed: readonly FailedTransfer[];
}

const BOOKED_COLUMNS = [10, 13, 12, 42];
const TRANSFER_COLUMNS = [24, 12, 42, 8];
const line = (columns: readonly number[], cells: readonly string[]) => console.log(printableLine(columns, cells));

function printFound({ booked, received, undecided, failed }: Found, { catalog }: Config): void {
  console.log(`\nBooked by this: ${booked.length}`);
  if (booked.length > 0) line(BOOKED_COLUMNS, ['transfer', 'kind', 'micro-USD', 'account', 'of']);
  for (const { id, kind, amountMicroUsd, account, reference } of booked) {
    line(BOOKED_COLUMNS, [`${id}`, kind, `${amountMicroUsd}`, account ?? '', reference ?? '']);
  }
  if (received) {
    const { known, open, others } = received;
    console.log(`\nTransfers to the payees on the chain: ${known.length} are settled payments here.`);
    printTransfers(`${open.length} are of payments that are under way, or whose terms differ:`, open);
    printTransfers(`${others.length} were sent without an authorization, so not to this service:`, others);
    printFailed(failed);
    const meanings = (transfer: DatedTransfer) => meaningOf(transfer.amount, catalog);
    printTransfers(`${undecided.length} are of no payment here:`, undecided, meanings);
    if (undecided.length > 0) {
      console.log(
        'Decide: --book takes those that can be a deposit or speech only as what they can be, by the bounds of deposits and\n' +
          'the prices of the catalog; use it when these payees are paid for nothing else. --deposit TX[:LOG] credits the\n' +
          'payer, --speech TX[:LOG] books revenue. Your log has what each was: flow and chargedMicroUsd at that time.',
      );
    }
  }
  console.log(`\n${NOBODY_KNOWS.join('\n')}`);
}

function printFailed(failed: readonly FailedTransfer[]): void {
  if (failed.length === 0) return;
  console.log(`FAILED: ${failed.length} could not be booked. Fix the cause, then run this again:`);
  for (const { transfer, error } of failed) console.log(printable(`${placeOf(transfer)} ${reasonOf(error)}`));
}

function printTransfers(
  heading: string,
  transfers: readonly DatedTransfer[],
  meaning: (transfer: DatedTransfer) => Meaning | '' = () => '',
): void {
  if (transfers.length === 0) return;
  console.log(heading);
  line(TRANSFER_COLUMNS, ['at', 'micro-USD', 'payer', 'can be', 'transfer']);
  for (const each of transfers) {
    const { at, amount, payer } = each;
    line(TRANSFER_COLUMNS, [at.toISOString(), `${amount}`, payer, meaning(each), placeOf(each)]);
  }
}

function printJson(
  { results, booked, received, undecided, failed }: Found & { results: readonly TurnResult[] },
  { catalog }: Config,
): void {
  const shown = ({ at, amount, payer, payTo, transaction, logIndex }: DatedTransfer) => ({
    ...{ at: at.toISOString(), amountMicroUsd: Number(amount), payer, payTo, transaction, logIndex },
    canBe: meaningOf(amount, catalog),
  });
  console.log(
    printableJson({
      reconcilers: results.map(({ name, outcome, count }) => ({ name, outcome, count })),
      booked: booked.map((each) => ({ ...each, id: Number(each.id), amountMicroUsd: Number(each.amountMicroUsd) })),
      transfers: received && {
        known: received.known.map(shown),
        open: received.open.map(shown),
        others: received.others.map(shown),
        undecided: undecided.map(shown),
        failed: failed.map(({ transfer, error }) => ({ ...shown(transfer), reason: reasonOf(error) })),
      },
      nobodyKnows: NOBODY_KNOWS,
    }),
  );
}
