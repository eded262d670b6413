import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import type { AudioStore } from '../audio/audio-store.ts';
import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';
import type { HoldEvent, Metrics } from '../observability/metrics.ts';
import { tracing } from '../observability/tracing.ts';
import { collectSpeech } from '../speech/collect.ts';
import { type AudioType, type SpeakingUpstream, SpeechError, type SpeechProvider } from '../speech/provider.ts';
import { type Claim, claimJob } from './claim-job.ts';
import { completeJob, failJob, requeueJob } from './end-job.ts';
import { audioKey } from './job.ts';
import { MAX_ATTEMPTS, retryDelayMs } from './retry.ts';

export interface JobRunnerOptions {
  readonly db: Database;
  readonly provider: SpeechProvider;
  /** Upper bound of one synthesis. */
  readonly timeoutMs: number;
  readonly store: AudioStore;
  readonly retentionSeconds: number;
  readonly metrics: Metrics;
  readonly log: FastifyBaseLogger;
}

/** How long to wait before the end of a job, that could not be written, is written again. */
const WRITE_AGAIN_MS = 1_000;

/** What an attempt comes to. */
type Outcome =
  | {
      readonly kind: 'completed';
      readonly mimeType: AudioType;
      readonly sizeBytes: number;
      readonly upstream?: SpeakingUpstream | undefined;
    }
  | { readonly kind: 'failed'; readonly code: string; readonly message: string }
  | { readonly kind: 'retry'; readonly delayMs: number }
  /** Broken off by the signal. */
  | { readonly kind: 'given back' };

/** What an outcome means for the hold; the others leave it pending. */
const HOLD_EVENTS: Partial<Record<Outcome['kind'], HoldEvent>> = { completed: 'captured', failed: 'voided' };

/**
 * Makes one attempt at a job: claims it, speaks, stores the audio, and writes the end together with that of the hold.
 * Does nothing when the job is not there to be claimed. When the signal fires, the job is given back.
 */
export async function runJob(
  jobId: string,
  workerId: string,
  options: JobRunnerOptions,
  signal: AbortSignal,
): Promise<void> {
  const claim = await claimJob(options.db, jobId, workerId);
  if (!claim) return;
  const { traceId, traceparent } = claim;
  const log = options.log.child({ job: jobId, traceId, attempt: claim.attempt });
  const run = async () => {
    log.info('an attempt at a job begins');
    await runAttempt(claim, { ...options, log }, signal);
  };
  await (traceparent === null ? run() : (tracing()?.goOn(traceparent, { name: 'job', traceId }, run) ?? run()));
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
    log.info(
      { ...endOf(outcome, claim), ms: Math.round(performance.now() - begunAt) },
      'an attempt at a job has ended',
    );
  }
  if (isOwner === false) {
    log.warn('a job had been taken over: what this worker made is discarded');
    testPoint('job taken over');
    if (outcome.kind === 'completed' && claim.storeAudio) {
      await options.store.delete(audioKey(claim.jobId, claim.fence));
    }
  }
}

/** What the log tells of an attempt that has ended, and of the charge when the job has. */
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
    return {
      kind: 'failed',
      code: 'INTERNAL_ERROR',
      message: 'The job was interrupted too often. It was not charged.',
    };
  }
  const startedAt = performance.now();
  const deadline = new AbortController();
  const abort = () => deadline.abort();
  const timer = setTimeout(abort, options.timeoutMs);
  signal.addEventListener('abort', abort);
  try {
    if (signal.aborted) return { kind: 'given back' };
    const { mimeType, audio, upstream } = await collectSpeech(options.provider, claim.utterance, deadline.signal);
    testPoint('job spoken');
    if (claim.storeAudio) await options.store.put(audioKey(claim.jobId, claim.fence), audio, mimeType);
    testPoint('job stored');
    return { kind: 'completed', mimeType, sizeBytes: audio.length, upstream };
  } catch (error) {
    if (signal.aborted) return { kind: 'given back' };
    options.log.warn({ err: error }, 'an attempt at a job failed');
    return afterFault(error, claim, claim.elapsedMs + performance.now() - startedAt);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', abort);
  }
}

/** What is no fault of the provider is one of ours, such as a store that is away: it is tried again too. */
function afterFault(error: unknown, claim: Claim, elapsedMs: number): Outcome {
  const { code, message, transient, retryAfterSeconds } =
    error instanceof SpeechError
      ? error
      : { code: 'INTERNAL_ERROR', message: 'Something failed inside the service.', transient: true };
  const delayMs = transient ? retryDelayMs(claim.attempt, elapsedMs, retryAfterSeconds, Math.random()) : undefined;
  if (delayMs !== undefined) return { kind: 'retry', delayMs };
  return { kind: 'failed', code, message: `${message} The job was not charged.` };
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

/**
 * Writes while the database is away, until it is back: this process owns the job as long as its heartbeat is seen, and
 * nobody else would end it. A process that is being stopped leaves the job to be taken over.
 */
async function writeUntilDone(
  write: () => Promise<boolean>,
  { log }: JobRunnerOptions,
  signal: AbortSignal,
): Promise<boolean | undefined> {
  for (;;) {
    try {
      return await write();
    } catch (error) {
      log.error({ err: error }, 'the end of a job could not be written');
      if (signal.aborted) return undefined;
      await sleep(WRITE_AGAIN_MS);
    }
  }
}
