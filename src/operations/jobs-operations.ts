import type { AudioStore } from '../audio/audio-store.ts';
import type { GetJobAudioRequest, JobsOperations } from '../contract/operations.ts';
import type { Database } from '../db/database.ts';
import { PRIVATE } from '../http/headers.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { failure } from '../http/structured-error.ts';
import { findJob } from '../jobs/find-job.ts';
import { type JobLinks, jobBody } from './job-body.ts';
import { admitLink, askedRange, serveAudio, unlessUnreadable } from './stored-audio.ts';

const POLL_AFTER_SECONDS = 1;

export interface JobsOptions extends JobLinks {
  readonly db: Database;
  readonly store: AudioStore;
}

/** Asynchronous speech: its state and its audio. */
export function jobsOperations({ db, store, ...links }: JobsOptions): JobsOperations<OperationContext> {
  const unknown = () => failure('NOT_FOUND', 'There is no such job.', { field: 'jobId' });

  /**
   * In the order of R50; what has no audio is told as R18 says.
   */
  async function getJobAudio({ params, query, headers }: GetJobAudioRequest, context: OperationContext) {
    const { signer } = links;
    const { isSigned, limited } = await admitLink(signer, query.sig, params.jobId.toLowerCase(), context);
    if (limited) return limited;
    if (isSigned === false) {
      return failure('UNAUTHORIZED', 'sig is not valid for this audio, or no longer. The job has a fresh link.', {
        field: 'sig',
        rule: 'signature',
      });
    }
    const job = await findJob(db, params.jobId);
    if (!job) return unknown();
    if (job.state === 'failed') {
      return failure('NOT_FOUND', 'The job failed, so there is no audio. It was not charged.', { field: 'jobId' });
    }
    if (!job.audio) {
      const details = { status: job.state, statusUrl: `${links.baseUrl}/tts/jobs/${job.id}` };
      const answer = failure('JOB_NOT_READY', 'The job is not completed yet. Ask again in a moment.', details);
      return { ...answer, headers: { 'retry-after': POLL_AFTER_SECONDS } };
    }
    if (!job.audio.stored) {
      return failure(
        'AUDIO_NOT_STORED',
        'The audio of this job is not kept: storeAudio was false, or its time is over.',
      );
    }
    if (signer && !isSigned) {
      return failure('UNAUTHORIZED', 'sig is missing. Take the link from links.audio of the job.', {
        field: 'sig',
        rule: 'required',
      });
    }
    const { mimeType, sizeBytes, stored } = job.audio;
    const audio = { key: stored.key, id: job.id, parameter: 'jobId', mimeType, sizeBytes };
    return serveAudio(store, audio, askedRange(headers, context));
  }

  return {
    getJob: async ({ params }) => {
      const job = await findJob(db, params.jobId);
      if (!job) return unknown();
      return { status: 200, headers: { 'cache-control': PRIVATE }, body: await jobBody(job, links) };
    },
    getJobAudio: (request, context) => unlessUnreadable(context, () => getJobAudio(request, context)),
  };
}
