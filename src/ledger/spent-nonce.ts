import type { Database } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import { isBeingStored, isOffered, type LostAnswer } from './lost-answers.ts';

/** Longer than an answer is followed that was handed over, and stored when it did not arrive. */
const LONG_OVER_SECONDS = 300;
/** Longer than an answer is followed that was handed over at once. */
const FOLLOWED_SECONDS = 40;

/** What became of the debit that a request has made: its end is open, it was charged, or nothing is charged in the end. */
export type SpendState = 'pending' | 'charged' | 'restored';

/** The debit of a request, as one who repeats the request is told of it. */
export interface EarlierSpend {
  readonly holdId: bigint;
  readonly processId: number | null;
  readonly amountMicroUsd: bigint;
  /** Of the wallet, now. */
  readonly balanceMicroUsd: bigint;
  readonly state: SpendState;
  /** It is charged and its process has not told yet that it is finished: it may be reversed. */
  readonly isUnfinished: boolean;
  /** It has ended a moment ago, or its audio is being stored: its answer may turn out not to have arrived. */
  readonly mayBeLost: boolean;
  /** It has ended some time ago. */
  readonly isLongOver: boolean;
  /** Its audio, where that is kept for the caller. */
  readonly audio: LostAnswer | undefined;
}

interface Row {
  readonly hold_id: bigint;
  readonly process_id: number | null;
  readonly amount: bigint;
  readonly balance: bigint;
  readonly state: SpendState;
  readonly unfinished: boolean;
  readonly may_be_lost: boolean | null;
  readonly long_over: boolean | null;
  readonly id: string | null;
  readonly size_bytes: number;
  readonly expires_at: Date;
}

/**
 * The debit that exactly this request has made; undefined when its nonce is unspent, was spent by another request, or by
 * a release that did not take note of the request.
 * @param address of the wallet, in lower case
 * @param digest as it was told with the spend
 */
export async function findSpend(
  db: Database,
  address: string,
  nonce: string,
  digest: Buffer,
): Promise<EarlierSpend | undefined> {
  const { rows } = await statement<Row>`
    select transfer.id as hold_id, process_id, amount_micro_usd as amount, balance_micro_usd as balance,
           case when transfer.state = 'pending' then 'pending'
                when transfer.state = 'voided' or reversal.transfer_id is not null then 'restored' else 'charged' end as state,
           coalesce(transfer.id = any(unfinished)
                    or transfer.id >= finished_below and transfer.id <> all(finished), false) as unfinished,
           transfer.ended_at > now() - make_interval(secs => ${FOLLOWED_SECONDS}::double precision)
             or exists (select from lost_answer lost where lost.hold_id = transfer.id and ${isBeingStored}) as may_be_lost,
           transfer.ended_at < now() - make_interval(secs => ${LONG_OVER_SECONDS}::double precision) as long_over,
           lost.id, lost.size_bytes, lost.expires_at
    from account join prepaid_nonce spent on spent.account_id = account.id
      join transfer on transfer.id = spent.hold_id
      left join reversal on reversal.transfer_id = transfer.id
      left join gateway_process process on process.id = process_id
      left join lost_answer lost on lost.hold_id = transfer.id and ${isOffered}
    where address = ${address} and spent.nonce = ${nonce} and request_digest = ${digest}`.execute(db);
  const row = rows[0];
  if (!row) return undefined;
  const { id, size_bytes: sizeBytes, expires_at: expiresAt } = row;
  return {
    holdId: row.hold_id,
    processId: row.process_id,
    amountMicroUsd: row.amount,
    balanceMicroUsd: row.balance,
    state: row.state,
    isUnfinished: row.unfinished,
    mayBeLost: row.may_be_lost ?? false,
    isLongOver: row.long_over ?? false,
    audio: id === null ? undefined : { id, sizeBytes, expiresAt },
  };
}
