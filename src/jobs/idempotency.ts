import { createHash, createHmac } from 'node:crypto';
import type { Database } from '../db/database.ts';
import { findCardAccount } from '../ledger/accounts.ts';
import { canonicalize } from '../lib/canonical-json.ts';
import { type CardReceipt, cardReceipt } from '../payments/card-credits.ts';
import type { Earlier } from '../payments/delivery.ts';
import type { Replayed } from '../payments/payment-flow.ts';
import { refused } from '../payments/refusal.ts';
import type { Utterance } from '../speech/provider.ts';
import { JOB_COLUMNS, jobOf } from './find-job.ts';
import type { Job } from './job.ts';

/** An asynchronous request, as far as it may be repeated. Two are the same when they would be spoken and kept alike. */
export interface RepeatableRequest {
  readonly accountId: string | undefined;
  readonly utterance: Utterance;
  readonly storeAudio: boolean;
  readonly idempotencyKey: string | undefined;
}

/** What of an idempotency key reaches the database (R17). */
export interface Idempotency {
  /** Scoped to the account, so that equal keys of two accounts have nothing in common. */
  readonly key: Buffer;
  /** Of the request, keyed with what only the caller knows: it tells nothing about a text that has been erased (R18). */
  readonly request: Buffer;
}

/** Undefined for a request without a key. @param accountId in lower case */
export function idempotencyOf(
  { idempotencyKey, utterance, storeAudio }: RepeatableRequest,
  accountId: string,
): Idempotency | undefined {
  if (idempotencyKey === undefined) return undefined;
  const { text, model, voice, speed } = utterance;
  const canonical = canonicalize({ text, model, voice, speed, storeAudio });
  return {
    key: createHash('sha256').update(`${accountId}\n${idempotencyKey}`).digest(),
    request: createHmac('sha256', idempotencyKey).update(canonical).digest(),
  };
}

/**
 * The job of an earlier request with the same idempotency key, or that the key was used for another request (R17). Locks
 * the account's row, so that of two equal requests the second sees the job of the first.
 * @param livemode of the processor's key: an account of the other mode is unknown
 */
export async function findEarlier(
  trx: Database,
  livemode: boolean,
  request: RepeatableRequest,
): Promise<Replayed<Job, CardReceipt> | Earlier | undefined> {
  const { accountId } = request;
  const repeatable = accountId && idempotencyOf(request, accountId.toLowerCase());
  if (!repeatable) return undefined;
  const account = await findCardAccount(trx, accountId, { livemode, lock: true });
  if (!account) return refused('PAYMENT_REQUIRED', 'unknown_account', { balanceMicroUsd: 0n });
  const row = await trx
    .selectFrom('job')
    .select([...JOB_COLUMNS, 'request_hash'])
    .where('account_id', '=', account.id)
    .where('idempotency_key', '=', repeatable.key)
    .executeTakeFirst();
  if (!row) return undefined;
  if (!row.request_hash?.equals(repeatable.request)) return refused('INVALID_REQUEST', 'idempotency_key_reused');
  const receipt = cardReceipt(accountId, account.balanceMicroUsd);
  return { outcome: 'replayed', delivered: jobOf(row), receipt };
}
