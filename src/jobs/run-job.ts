import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import type { LeaseRenewer } from '../db/lease.ts';
import { QueueWorker, type QueueWorkerOptions } from '../db/queue-worker.ts';
import { testPoint } from '../lib/test-point.ts';
import type { HoldEvent, Metrics } from '../observability/metrics.ts';
import { continueTrace } from '../observability/tracing.ts';
import { type CollectedSpeech, collectSpeech } from '../speech/open-provider.ts';
import {
  type AudioType,
  type SpeakingUpstream,
  SpeechError,
  type SpeechProvider,
  type Utterance,
} from '../speech/provider.ts';
import type { AudioStore } from '../speech/store/audio-store.ts';
import { type Claim, claimJob, jobLeases } from './claim-job.ts';
import { completeJob, failJob, requeueJob } from './end-job.ts';
import { audioKey } from './job.ts';
import { findSegments, speakSegments } from './job-segments.ts';
import { TASK, type TaskPayload } from './turn.ts';

export const MAX_ATTEMPTS = 5;
export const MAX_ELAPSED_MS = 15 * 60_000;
const FIRST_DELAY_MS = 1_000;
const GROWTH = 3;

/** Delay in ms before the next attempt after a transient fault; undefined if there is none. */
export function retryDelayMs(
  attempt: number,
  elapsedMs: number,
  retryAfterSeconds: number | undefined,
  random: number,
): number | undefined {
  if (attempt >= MAX_ATTEMPTS) return undefined;
  const backoff = FIRST_DELAY_MS * GROWTH ** (attempt - 1) * (1 + random / 4);
  const delay = Math.max(backoff, (retryAfterSeconds ?? 0) * 1000);
  return elapsedMs + delay <= MAX_ELAPSED_MS ? delay : undefined;
}

interface JobRunnerOptions {
  readonly db: Database;
  readonly provider: SpeechProvider;
  readonly timeoutMs: number;
  readonly store: AudioStore;
  readonly retentionSeconds: number;
  readonly leases: LeaseRenewer<Claim>;
  readonly metrics: Metrics;
  readonly log: FastifyBaseLogger;
}

const WRITE_AGAIN_MS = 1_000;

type Outcome =
  | {
      readonly kind: 'completed';
      readonly mimeType: AudioType;
      readonly sizeBytes: number;
      readonly upstream?: SpeakingUpstream | undefined;
    }
  | { readonly kind: 'failed'; readonly code: string; readonly message: string }
  | { readonly kind: 'retry'; readonly delayMs: number }
  | { readonly kind: 'given back' };

const HOLD_EVENTS: Partial<Record<Outcome['kind'], HoldEvent>> = { completed: 'captured', failed: 'voided' };

/** Claims a job, speaks it, stores its audio, and ends it (R18). */
async function runJob(jobId: string, options: JobRunnerOptions, signal: AbortSignal): Promise<void> {
  const askedAt = performance.now();
  const claim = await claimJob(options.db, jobId);
  if (!claim) return;
  const endLease = options.leases.keep(claim, askedAt);
  const log = options.log.child({ job: jobId, traceId: claim.traceId, attempt: claim.attempt });
  const run = async () => {
    log.info('a job attempt started; no action is needed');
    await runAttempt(claim, { ...options, log }, signal);
  };
  try {
    await continueTrace(claim, run);
  } finally {
    endLease();
  }
}

async function runAttempt(claim: Claim, options: JobRunnerOptions, signal: AbortSignal): Promise<void> {
  const { log } = options;
  testPoint('job claimed');
  const begunAt = performance.now();
  const outcome = await attempt(claim, options, signal);
  const isOwner = await writeUntilDone(() => writeOutcome(claim, outcome, options), options, signal);
  if (isOwner) {
    testPoint(`job ${outcome.kind}`);
    const event = HOLD_EVENTS[outcome.kind];
    if (event) options.metrics.holdMoved('card', event, claim.priceMicroUsd);
    const ms = Math.round(performance.now() - begunAt);
    log.info(
      { ...endOf(outcome, claim), ms },
      'a job attempt ended; no action is needed. The member end says how: completed (charged), failed (not charged), retry or given back (runs again)',
    );
  }
  if (isOwner === false) {
    log.warn('another worker took over this job, so this result is discarded. The job is charged at most once');
    testPoint('job taken over');
    if (outcome.kind === 'completed' && claim.storeAudio) {
      await options.store.delete(audioKey(claim.jobId, claim.fence));
    }
  }
}

function endOf(outcome: Outcome, { priceMicroUsd }: Claim): object {
  switch (outcome.kind) {
    case 'completed':
      return { end: outcome.kind, bytes: outcome.sizeBytes, chargedMicroUsd: Number(priceMicroUsd) };
    case 'failed':
      return { end: outcome.kind, code: outcome.code, chargedMicroUsd: 0 };
    case 'retry':
      return { end: outcome.kind, delayMs: Math.round(outcome.delayMs) };
    case 'given back':
      return { end: outcome.kind };
  }
}

async function attempt(claim: Claim, options: JobRunnerOptions, signal: AbortSignal): Promise<Outcome> {
  if (claim.attempt > MAX_ATTEMPTS) {
    const message =
      'The service was interrupted too often to finish the job. Send the text again, with a new idempotency-key or none. The job was not charged.';
    return { kind: 'failed', code: 'INTERNAL_ERROR', message };
  }
  let history: Pick<Claim, 'attempt' | 'elapsedMs'> = claim;
  let since = performance.now();
  const onProgress = () => {
    history = { attempt: 1, elapsedMs: 0 };
    since = performance.now();
  };
  try {
    if (signal.aborted) return { kind: 'given back' };
    if (claim.isSegmented) {
      const segments = await findSegments(options.db, claim.jobId);
      const speak = (text: string) =>
        speakInTime({ ...claim.utterance, text, isCaptioned: true }, options, signal, 'audio/mpeg');
      const spoken = await speakSegments(claim, segments, { ...options, signal, speak, onProgress });
      if (spoken.outcome === 'taken over') return { kind: 'given back' };
      return { kind: 'completed', mimeType: 'audio/mpeg', ...spoken };
    }
    const { mimeType, audio, upstream } = await speakInTime(claim.utterance, options, signal);
    testPoint('job spoken');
    if (claim.storeAudio) await options.store.put(audioKey(claim.jobId, claim.fence), audio, mimeType);
    testPoint('job stored');
    return { kind: 'completed', mimeType, sizeBytes: audio.length, upstream };
  } catch (error) {
    if (signal.aborted) return { kind: 'given back' };
    options.log.warn(
      { err: error },
      'a job attempt failed, and nothing was charged. Its cause is in err; the next line of this job says whether it is retried',
    );
    return afterFault(error, history.attempt, history.elapsedMs + performance.now() - since);
  }
}

async function speakInTime(
  utterance: Utterance,
  { provider, timeoutMs }: JobRunnerOptions,
  signal: AbortSignal,
  only?: AudioType,
): Promise<CollectedSpeech> {
  const deadline = new AbortController();
  const abort = () => deadline.abort();
  const timer = setTimeout(abort, timeoutMs);
  signal.addEventListener('abort', abort);
  try {
    return await collectSpeech(provider, utterance, deadline.signal, only);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', abort);
  }
}

/** Faults that are not the provider's are internal, such as an unavailable store. They are retried too. */
function afterFault(error: unknown, attempt: number, elapsedMs: number): Outcome {
  const { code, message, transient, retryAfterSeconds } =
    error instanceof SpeechError
      ? error
      : { code: 'INTERNAL_ERROR', message: 'The service had an internal error.', transient: true };
  const delayMs = transient ? retryDelayMs(attempt, elapsedMs, retryAfterSeconds, Math.random()) : undefined;
  if (delayMs !== undefined) return { kind: 'retry', delayMs };
  const next = transient
    ? 'Send the text again later, with a new idempotency-key or none.'
    : 'Change the request, or ask the operator.';
  return { kind: 'failed', code, message: `${message} ${next} The job was not charged.` };
}

function writeOutcome(claim: Claim, outcome: Outcome, { db, retentionSeconds }: JobRunnerOptions): Promise<boolean> {
  switch (outcome.kind) {
    case 'completed':
      return completeJob(db, claim, outcome, retentionSeconds);
    case 'failed':
      return failJob(db, claim, outcome, retentionSeconds);
    case 'retry':
      return requeueJob(db, claim, { delayMs: outcome.delayMs });
    case 'given back':
      return requeueJob(db, claim, { delayMs: 0, uncounted: true });
  }
}

/** Retries until the database is back. At a stop it returns undefined, and another process takes the job over. */
async function writeUntilDone(write: () => Promise<boolean>, { log }: JobRunnerOptions, signal: AbortSignal) {
  for (;;) {
    try {
      return await write();
    } catch (error) {
      log.error(
        { err: error },
        'failed to save the end of a job attempt. The service tries again every second, after a stop in another process, and charges the job at most once. Fix the cause in err if this line repeats',
      );
      if (signal.aborted) return undefined;
      await sleep(WRITE_AGAIN_MS);
    }
  }
}

type JobWorkerOptions = Omit<JobRunnerOptions, 'leases'> & Omit<QueueWorkerOptions, 'maxConnections'>;

/** In addition to one connection per job: one listens, and one ends queue entries. */
const EXTRA_CONNECTIONS = 2;

/** Runs queued jobs in this process. Jobs that take too long to end at a stop are requeued. */
export class JobWorker extends QueueWorker {
  constructor(options: JobWorkerOptions) {
    const runner = { ...options, leases: jobLeases(options.db) };
    const run = (payload: unknown, signal: AbortSignal) => runJob((payload as TaskPayload).jobId, runner, signal);
    const maxConnections = options.concurrency + EXTRA_CONNECTIONS;
    super({ name: 'job worker', task: TASK, run }, { ...options, maxConnections });
  }
}
