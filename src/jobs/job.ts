import type { AudioType } from '../speech/provider.ts';

/**
 * A text that is spoken after the request that paid for it. Its hold ends with it, in the same transaction.
 *
 *     (none) -- accept --> queued -- claim --> processing -- complete --> completed, hold captured
 *                          queued <-- give back, retry, take over -- processing
 *                                              processing -- fail --> failed, hold voided
 */
export interface Job {
  readonly id: string;
  readonly state: 'queued' | 'processing' | 'completed' | 'failed';
  /** Of the request that made the job. */
  readonly traceId: string;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** When the first worker began. */
  readonly startedAt: Date | null;
  /** When the job ended, either way. */
  readonly completedAt: Date | null;
  /** Why the job failed, safe to show. */
  readonly error: { readonly code: string; readonly message: string } | null;
  /** What a completed job has made. */
  readonly audio: JobAudio | null;
}

export interface JobAudio {
  readonly mimeType: AudioType;
  readonly sizeBytes: number;
  /** Where it is kept and until when; null when it was not to be kept, or its time has passed. */
  readonly stored: { readonly key: string; readonly expiresAt: Date } | null;
}

/** The key of what the owner with this fence stores: no two owners of a job write the same object. */
export const audioKey = (jobId: string, fence: number): string => `jobs/${jobId}/${fence}`;
