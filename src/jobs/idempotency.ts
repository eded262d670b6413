import { createHash, createHmac } from 'node:crypto';
import type { Database } from '../db/database.ts';
import { findCardAccount } from '../ledger/accounts.ts';
import { holdAmount } from '../ledger/hold.ts';
import { canonicalize } from '../lib/canonical-json.ts';
import { type CardReceipt, cardReceipt } from '../payments/card-credits.ts';
import type { Earlier } from '../payments/delivery.ts';
import type { Replayed } from '../payments/payment-flow.ts';
import { refused } from '../payments/refusal.ts';
import type { Utterance } from '../speech/provider.ts';
import { JOB_COLUMNS, jobOf } from './find-job.ts';
import type { Job } from './job.ts';

/** What a request asks to be spoken, as it was sent. */
export interface SentOrder {
  readonly text: string;
  readonly model?: string | undefined;
  readonly voice?: string | undefined;
  readonly speed?: number | string | undefined;
}

/**
 * An asynchronous request, as far as it may be repeated. Two are the same when they were sent alike, whatever the catalog
 * says by now, or would be spoken and kept alike.
 */
export interface RepeatableRequest {
  readonly accountId: string | undefined;
  readonly sent: SentOrder;
  /** Undefined while it can't be spoken, such as when its voice is gone. */
  readonly utterance: Utterance | undefined;
  readonly storeAudio: boolean;
  readonly idempotencyKey: string | undefined;
}

/** What of an idempotency key reaches the database (R17). */
export interface Idempotency {
  /** Scoped to the account, so that equal keys of two accounts have nothing in common. */
  readonly key: Buffer;
  /** Of the request as it was sent, keyed with what only the caller knows: it tells nothing about an erased text (R18). */
  readonly sent: Buffer;
  /** Likewise, of the request as it is spoken; undefined where it can't be. */
  readonly spoken: Buffer | undefined;
}

/** Undefined for a request without a key. @param accountId in lower case */
export function idempotencyOf(
  { idempotencyKey, sent, utterance, storeAudio }: RepeatableRequest,
  accountId: string,
): Idempotency | undefined {
  if (idempotencyKey === undefined) return undefined;
  const hash = ({ text, model, voice, speed }: SentOrder) => {
    const canonical = canonicalize({ text: text.trim(), model, voice, speed, storeAudio });
    return createHmac('sha256', idempotencyKey).update(canonical).digest();
  };
  return {
    key: createHash('sha256').update(`${accountId}\n${idempotencyKey}`).digest(),
    sent: hash({ ...sent, speed: sent.speed === undefined ? undefined : Number(sent.speed) }),
    spoken: utterance && hash(utterance),
  };
}

/**
 * The job of an earlier request with the same idempotency key, or that the key was used for another request (R17). Locks
 * the account's row, so that of two equal requests the second sees the job of the first.
 * @param livemode of the processor's key: an account of the other mode is unknown; undefined for either mode
 */
export async function findEarlier(
  trx: Database,
  livemode: boolean | undefined,
  request: RepeatableRequest,
): Promise<Replayed<Job, CardReceipt> | Earlier | undefined> {
  const { accountId } = request;
  const repeatable = accountId && idempotencyOf(request, accountId.toLowerCase());
  if (!repeatable) return undefined;
  const account = await findCardAccount(trx, accountId, { livemode, lock: true });
  if (!account) return refused('PAYMENT_REQUIRED', 'unknown_account', { balanceMicroUsd: 0n });
  const row = await trx
    .selectFrom('job')
    .select([...JOB_COLUMNS, 'hold_id', 'request_hash', 'sent_hash'])
    .where('account_id', '=', account.id)
    .where('idempotency_key', '=', repeatable.key)
    .executeTakeFirst();
  if (!row) return undefined;
  const { sent, spoken } = repeatable;
  const isSame = row.sent_hash?.equals(sent) || (spoken !== undefined && row.request_hash?.equals(spoken));
  if (!isSame) return refused('INVALID_REQUEST', 'idempotency_key_reused');
  const receipt = cardReceipt(accountId, account.balanceMicroUsd, await holdAmount(trx, row.hold_id));
  return { outcome: 'replayed', delivered: jobOf(row), receipt };
}
