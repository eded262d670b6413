import type { Database } from '../db/database.ts';
import { findCardAccount } from '../ledger/accounts.ts';
import { testPoint } from '../lib/test-point.ts';
import { type CardHold, type CardReceipt, cardReceipt } from '../payments/card-credits.ts';
import type { Delivery, Earlier } from '../payments/delivery.ts';
import type { Replayed } from '../payments/payment-flow.ts';
import { refused } from '../payments/refusal.ts';
import type { Utterance } from '../speech/provider.ts';
import type { SpeechAdmission } from '../speech/speech-admission.ts';
import { enqueue } from './enqueue.ts';
import { findJob } from './find-job.ts';
import { idempotency } from './idempotency.ts';
import type { Job } from './job.ts';
import { nextTurn } from './turn.ts';

/** What an asynchronous request says beside its text. */
export interface JobRequest {
  readonly accountId: string | undefined;
  readonly utterance: Utterance;
  readonly storeAudio: boolean;
  readonly idempotencyKey: string | undefined;
  readonly traceId: string;
}

export interface JobQueue {
  readonly db: Database;
  readonly admission: SpeechAdmission;
  /** Of the processor's key: an account of the other mode is unknown. */
  readonly livemode: boolean;
}

/**
 * Queues the text as a job that owns the hold: both are there, or neither. A repeat under the same idempotency key finds
 * the job of the first, with nothing debited again (R17): requests of one account take turns, and the key is unique in
 * the database.
 */
export const queued = ({ db, admission, livemode }: JobQueue, request: JobRequest): Delivery<CardHold, Job, Job> => ({
  admit: (utterance) =>
    admission.refuse(utterance) ?? {
      deliver: async (hold, trx) => ({ delivered: await insertJob(trx as Database, hold, request) }),
      release: () => {},
    },
  within: async (sell) => {
    const sold = await db
      .transaction()
      .execute(async (trx) => (await findEarlier(trx, livemode, request)) ?? (await sell(trx)));
    testPoint('job accepted');
    return sold;
  },
});

async function insertJob(trx: Database, { entry }: CardHold, request: JobRequest): Promise<Job> {
  const repeatable = idempotencyOf(request, entry.accountId);
  const { id } = await trx
    .insertInto('job')
    .values({
      account_id: entry.accountId,
      hold_id: entry.id,
      fence: entry.fence,
      trace_id: request.traceId,
      ...request.utterance,
      store_audio: request.storeAudio,
      idempotency_key: repeatable?.key ?? null,
      request_hash: repeatable?.request ?? null,
      turn: nextTurn(entry.accountId),
    })
    .returning('id')
    .executeTakeFirstOrThrow();
  await enqueue(trx, id);
  testPoint('job accepting');
  return (await findJob(trx, id)) as Job;
}

/**
 * The job of an earlier request with the same idempotency key, or that the key was used for another request. Locks the
 * account's row, so that of two equal requests the second sees the job of the first.
 */
async function findEarlier(
  trx: Database,
  livemode: boolean,
  request: JobRequest,
): Promise<Replayed<Job, CardReceipt> | Earlier | undefined> {
  const { accountId } = request;
  const repeatable = accountId && idempotencyOf(request, accountId.toLowerCase());
  if (!repeatable) return undefined;
  const account = await findCardAccount(trx, accountId, { livemode, lock: true });
  if (!account) return refused('PAYMENT_REQUIRED', 'unknown_account', { balanceMicroUsd: 0n });
  const row = await trx
    .selectFrom('job')
    .select(['id', 'request_hash'])
    .where('account_id', '=', account.id)
    .where('idempotency_key', '=', repeatable.key)
    .executeTakeFirst();
  if (!row) return undefined;
  if (!row.request_hash?.equals(repeatable.request)) return refused('INVALID_REQUEST', 'idempotency_key_reused');
  const receipt = cardReceipt(accountId, account.balanceMicroUsd);
  return { outcome: 'replayed', delivered: (await findJob(trx, row.id)) as Job, receipt };
}

const idempotencyOf = ({ idempotencyKey, ...request }: JobRequest, accountId: string) =>
  idempotencyKey === undefined ? undefined : idempotency(idempotencyKey, accountId, request);
