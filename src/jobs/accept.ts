import type { Database } from '../db/database.ts';
import { findCardAccount } from '../ledger/accounts.ts';
import { placeHold } from '../ledger/hold.ts';
import type { PaidFor } from '../ledger/paid-for.ts';
import type { CreditRefusal } from '../payments/card-credits.ts';
import type { Utterance } from '../speech/provider.ts';
import { testPoint } from '../test-point.ts';
import { enqueue } from './enqueue.ts';
import { findJob } from './find.ts';
import { type Idempotency, idempotency } from './idempotency.ts';
import type { Job } from './job.ts';
import { nextTurn } from './turn.ts';

/** A validated and priced request for asynchronous speech. */
export interface JobRequest {
  readonly accountId: string | undefined;
  /** Of the processor's key: an account of the other mode is unknown. Undefined for one of either mode. */
  readonly livemode: boolean | undefined;
  readonly utterance: Utterance;
  readonly priceMicroUsd: bigint;
  readonly paidFor: PaidFor;
  readonly storeAudio: boolean;
  readonly idempotencyKey: string | undefined;
  readonly traceId: string;
}

export type AcceptResult =
  /** A repeat found the job of an earlier request, and debited nothing. */
  | {
      readonly outcome: 'accepted' | 'repeated';
      readonly job: Job;
      readonly balanceMicroUsd: bigint;
    }
  | { readonly outcome: 'refused'; readonly refusal: CreditRefusal }
  /** The idempotency key was used for another request. */
  | { readonly outcome: 'conflict' };

/**
 * Debits the price and queues the job, both or neither. A repeat under the same idempotency key finds the job of the
 * first, with nothing debited again (R17): requests of one account take turns, and the key is unique in the database.
 */
export async function acceptJob(db: Database, request: JobRequest): Promise<AcceptResult> {
  const accountId = request.accountId?.toLowerCase();
  if (!accountId) return refuse('no_account');
  const result = await db.transaction().execute(async (trx): Promise<AcceptResult> => {
    const repeated =
      request.idempotencyKey === undefined ? undefined : idempotency(request.idempotencyKey, accountId, request);
    if (repeated) {
      const earlier = await findRepeated(trx, accountId, request.livemode, repeated);
      if (earlier) return earlier;
    }
    const { paidFor, livemode } = request;
    const held = await placeHold(trx, accountId, request.priceMicroUsd, null, { paidFor, livemode });
    if (held.outcome === 'unknown_account') return refuse('unknown_account');
    if (held.outcome === 'insufficient_funds') return refuse('insufficient_funds', held.balanceMicroUsd);
    const { hold } = held;
    const { id } = await trx
      .insertInto('job')
      .values({
        account_id: hold.accountId,
        hold_id: hold.id,
        fence: hold.fence,
        trace_id: request.traceId,
        ...request.utterance,
        store_audio: request.storeAudio,
        idempotency_key: repeated?.key ?? null,
        request_hash: repeated?.request ?? null,
        turn: nextTurn(hold.accountId),
      })
      .returning('id')
      .executeTakeFirstOrThrow();
    await enqueue(trx, id);
    testPoint('job accepting');
    const job = (await findJob(trx, id)) as Job;
    return { outcome: 'accepted', job, balanceMicroUsd: hold.balanceMicroUsd };
  });
  if (result.outcome === 'accepted') testPoint('job accepted');
  return result;
}

/** Locks the account's row, so that of two equal requests the second sees the job of the first. */
async function findRepeated(
  trx: Database,
  accountId: string,
  livemode: boolean | undefined,
  { key, request }: Idempotency,
): Promise<AcceptResult | undefined> {
  const account = await findCardAccount(trx, accountId, { livemode, lock: true });
  if (!account) return refuse('unknown_account');
  const row = await trx
    .selectFrom('job')
    .select(['id', 'request_hash'])
    .where('account_id', '=', account.id)
    .where('idempotency_key', '=', key)
    .executeTakeFirst();
  if (!row) return undefined;
  if (!row.request_hash?.equals(request)) return { outcome: 'conflict' };
  const job = (await findJob(trx, row.id)) as Job;
  return { outcome: 'repeated', job, balanceMicroUsd: account.balanceMicroUsd };
}

const refuse = (reason: CreditRefusal['reason'], balanceMicroUsd = 0n): AcceptResult => ({
  outcome: 'refused',
  refusal: { reason, balanceMicroUsd },
});
