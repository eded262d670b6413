import type { Database } from '../db/database.ts';
import { fragment, statement } from '../db/statement.ts';
import { fenceHold } from '../ledger/hold.ts';
import type { Utterance } from '../speech/provider.ts';

/** A job that this process works on. Everything it writes about the job names the fence, and fails once it is another. */
export interface Claim {
  readonly jobId: string;
  /** Of the request that queued it. */
  readonly traceId: string;
  /** Its place in a trace; null where it was not traced. */
  readonly traceparent: string | null;
  readonly holdId: bigint;
  /** What the hold holds. */
  readonly priceMicroUsd: bigint;
  readonly fence: number;
  readonly utterance: Utterance;
  readonly storeAudio: boolean;
  /** This attempt's number, from 1 on. Attempts that ended with their process count. */
  readonly attempt: number;
  /** Since the first attempt began, in milliseconds. */
  readonly elapsedMs: number;
}

/**
 * Makes the process the owner of a job that is queued and due, and raises the fence of job and hold. Undefined when
 * somebody else was first, or the job has ended.
 */
export async function claimJob(db: Database, jobId: string, workerId: string): Promise<Claim | undefined> {
  const { rows } = await statement<Row>`
    with claimed as (
      update job set state = 'processing', worker_id = ${workerId}, fence = fence + 1, attempts = attempts + 1,
                     started_at = coalesce(started_at, now()), updated_at = now()
      where id = ${jobId} and state = 'queued' and run_at <= now()
      returning *
    ), hold as (
      ${fenceHold(fragment`claimed`)}
    )
    select hold_id, trace_id, traceparent, amount_micro_usd, fence, text, model, voice, speed, model_id, store_audio, attempts,
           extract(epoch from now() - started_at)::double precision * 1000 as elapsed_ms
    from claimed, hold`.execute(db);
  const row = rows[0];
  return (
    row && {
      jobId,
      traceId: row.trace_id,
      traceparent: row.traceparent,
      holdId: row.hold_id,
      priceMicroUsd: row.amount_micro_usd,
      fence: row.fence,
      utterance: { text: row.text, model: row.model, voice: row.voice, speed: row.speed, modelId: row.model_id },
      storeAudio: row.store_audio,
      attempt: row.attempts,
      elapsedMs: row.elapsed_ms,
    }
  );
}

interface Row extends Omit<Utterance, 'modelId'> {
  readonly model_id: string | null;
  readonly trace_id: string;
  readonly traceparent: string | null;
  readonly hold_id: bigint;
  readonly amount_micro_usd: bigint;
  readonly fence: number;
  readonly store_audio: boolean;
  readonly attempts: number;
  readonly elapsed_ms: number;
}
