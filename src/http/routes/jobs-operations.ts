import type { GetJobAudioResult, JobsOperations } from '../../contract/operations.ts';
import type { TtsJob } from '../../contract/types.ts';
import type { Database } from '../../db/database.ts';
import { findJob, type Job } from '../../jobs/job.ts';
import type { AudioType } from '../../speech/provider.ts';
import type { AudioStore } from '../../speech/store/audio-store.ts';
import type { LinkSigner } from '../../speech/store/link-token.ts';
import type { OperationContext } from '../operation-context.ts';
import { PRIVATE } from '../plugins/headers.ts';
import { failure } from '../structured-error.ts';
import { answerStoredAudio, type StoredObject } from './stored-audio.ts';

const POLL_AFTER_SECONDS = 1;
const HINTS = { invalid: 'The job has a fresh link.', missing: 'Take the link from links.audio of the job.' };

export interface JobLinks {
  readonly baseUrl: string;
  readonly signer: LinkSigner | undefined;
}

export function jobsOperations(db: Database, store: AudioStore, links: JobLinks): JobsOperations<OperationContext> {
  const { baseUrl, signer } = links;
  const unknown = () => failure('NOT_FOUND', 'This job does not exist.', { field: 'jobId' });

  async function findAudio(
    id: string,
  ): Promise<StoredObject<AudioType> | Extract<GetJobAudioResult, { status: 404 | 409 | 410 }>> {
    const job = await findJob(db, id);
    if (!job) return unknown();
    if (job.state === 'failed') {
      return failure('NOT_FOUND', 'The job failed, so there is no audio. It was not charged.', { field: 'jobId' });
    }
    if (!job.audio) {
      const details = { status: job.state, statusUrl: `${baseUrl}/tts/jobs/${job.id}` };
      const answer = failure('JOB_NOT_READY', 'The job is not completed yet. Retry in a moment.', details);
      return { ...answer, headers: { 'retry-after': POLL_AFTER_SECONDS } };
    }
    const { mimeType, sizeBytes, stored } = job.audio;
    if (!stored) {
      const message = 'The audio of this job is not stored: storeAudio was false, or its retention period has passed.';
      return failure('AUDIO_NOT_STORED', message);
    }
    return { open: store.open.bind(store, stored.key), mimeType, sizeBytes };
  }

  return {
    getJob: async ({ params }) => {
      const job = await findJob(db, params.jobId);
      if (!job) return unknown();
      return { status: 200, headers: { 'cache-control': PRIVATE }, body: await jobBody(job, links) };
    },
    getJobAudio: ({ params, query, headers }, context) => {
      const id = params.jobId.toLowerCase();
      const link = { signer, sig: query.sig, id, parameter: 'jobId', hints: HINTS, headers };
      return answerStoredAudio(link, context, () => findAudio(id));
    },
  };
}

/** A job as the contract shows it, with absolute links (R52). */
export async function jobBody(job: Job, { baseUrl, signer }: JobLinks): Promise<TtsJob> {
  const status = `${baseUrl}/tts/jobs/${job.id}`;
  const stored = job.audio?.stored;
  const sig = stored && signer && (await signer.sign(job.id, stored.expiresAt));
  const audioUrl = stored ? `${status}/audio${sig === undefined ? '' : `?sig=${sig}`}` : null;
  return {
    jobId: job.id,
    status: job.state,
    traceId: job.traceId,
    createdAt: job.createdAt.toISOString(),
    updatedAt: job.updatedAt.toISOString(),
    startedAt: job.startedAt?.toISOString() ?? null,
    completedAt: job.completedAt?.toISOString() ?? null,
    error: job.error,
    result: job.audio && {
      audioUrl,
      stored: stored !== null,
      mimeType: job.audio.mimeType,
      sizeBytes: job.audio.sizeBytes,
    },
    links: { status, audio: audioUrl },
  };
}
