import { createHash, createHmac } from 'node:crypto';
import type { Database } from '../db/database.ts';
import { findCardAccount } from '../ledger/accounts.ts';
import { type HoldRecord, holdAmount } from '../ledger/hold.ts';
import { canonicalize } from '../lib/canonical-json.ts';
import { testPoint } from '../lib/test-point.ts';
import { traceparent } from '../observability/tracing.ts';
import { type CardCredential, type CardCredits, type CardReceipt, cardReceipt } from '../payments/card/card-credits.ts';
import { type Refused, refused } from '../payments/refusal.ts';
import type { Charge } from '../payments/speak.ts';
import type { Utterance } from '../speech/provider.ts';
import { JOB_COLUMNS, type Job, jobOf } from './job.ts';
import { insertSegments } from './job-segments.ts';
import { addEntry, nextTurn } from './turn.ts';

interface SentOrder {
  readonly text: string;
  readonly model?: string | undefined;
  readonly voice?: string | undefined;
  readonly speed?: number | string | undefined;
}

/** Requests are the same if they were sent alike, or are spoken and stored alike: the catalog may have changed. */
export interface RepeatableRequest {
  readonly accountId: string | undefined;
  readonly sent: SentOrder;
  readonly utterance: Utterance | undefined;
  readonly storeAudio: boolean;
  readonly idempotencyKey: string | undefined;
}

/** The job of an earlier request with the same idempotency key. */
export interface ReplayedJob {
  readonly outcome: 'replayed';
  readonly job: Job;
  readonly receipt: CardReceipt;
}

export type ReplayRefusal = Refused<'INVALID_REQUEST' | 'PAYMENT_REQUIRED'>;

/**
 * The hashes stored for an idempotency key, per account (R17). The request's hashes are keyed with what only the caller
 * knows, so they reveal nothing about an erased text (R18).
 */
function idempotencyOf({ idempotencyKey, sent, utterance, storeAudio }: RepeatableRequest, accountId: string) {
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

/** Finds the job of the key (R17). Locks the account, so that the second of two equal requests sees the first's job. */
async function findReplay(
  trx: Database,
  livemode: boolean | undefined,
  request: RepeatableRequest,
): Promise<ReplayedJob | ReplayRefusal | undefined> {
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
  return { outcome: 'replayed', job: jobOf(row), receipt };
}

export interface JobRequest extends RepeatableRequest {
  readonly utterance: Utterance;
  /** The text, as it is spoken in requests. */
  readonly parts: readonly string[];
  readonly traceId: string;
}

export async function findReplayedJob(
  db: Database,
  livemode: boolean | undefined,
  request: RepeatableRequest,
): Promise<ReplayedJob | Refused<'INVALID_REQUEST'> | undefined> {
  const replay = await db.transaction().execute((trx) => findReplay(trx, livemode, request));
  // Other refusals, such as an unknown account, matter less than that nothing is sold.
  if (replay?.outcome !== 'refused') return replay;
  return isOfKey(replay) ? replay : undefined;
}

/** Queues a job together with its hold (R6), in one transaction. A repetition returns the first request's job (R17). */
export async function queueJob(
  db: Database,
  cardCredits: CardCredits,
  { credential, charge }: { readonly credential: CardCredential; readonly charge: Charge },
  request: JobRequest,
) {
  const queued = await db.transaction().execute(async (trx) => {
    const replay = await findReplay(trx, cardCredits.livemode, request);
    if (replay) return replay;
    const authorization = await cardCredits.authorize(credential, charge, trx);
    if (authorization.outcome !== 'held') return authorization;
    const { hold } = authorization;
    return { outcome: 'queued' as const, job: await insertJob(trx, hold.record, request), receipt: hold.receipt };
  });
  testPoint('job accepted');
  return queued;
}

const isOfKey = (refusal: ReplayRefusal): refusal is Refused<'INVALID_REQUEST'> => refusal.code === 'INVALID_REQUEST';

async function insertJob(trx: Database, record: HoldRecord, request: JobRequest): Promise<Job> {
  const repeatable = idempotencyOf(request, record.accountId);
  const { text, model, voice, speed } = request.utterance;
  const row = await trx
    .with('accepted', (db) =>
      db
        .insertInto('job')
        .values({
          account_id: record.accountId,
          hold_id: record.id,
          fence: record.fence,
          trace_id: request.traceId,
          traceparent: traceparent(),
          ...{ text, model, voice, speed },
          store_audio: request.storeAudio,
          idempotency_key: repeatable?.key ?? null,
          request_hash: repeatable?.spoken ?? null,
          sent_hash: repeatable?.sent ?? null,
          turn: nextTurn(record.accountId),
        })
        .returningAll(),
    )
    .selectFrom('accepted')
    .select([...JOB_COLUMNS, addEntry.as('entry')])
    .executeTakeFirstOrThrow();
  const job = jobOf(row);
  const isLong = request.parts.length > 1;
  if (isLong) await insertSegments(trx, job.id, request.parts);
  testPoint('job accepting');
  return isLong ? { ...job, progress: { characters: 0, total: text.length } } : job;
}
