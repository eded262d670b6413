import { type AudioStore, StoreError } from '../audio/audio-store.ts';
import { parseRange } from '../audio/range.ts';
import type { GetJobAudioRequest, GetJobAudioResult, JobsOperations } from '../contract/operations.ts';
import type { Database } from '../db/database.ts';
import { PRIVATE } from '../http/headers.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { errorBody, failure } from '../http/structured-error.ts';
import { findJob } from '../jobs/find-job.ts';
import type { JobAudio } from '../jobs/job.ts';
import { type JobLinks, jobBody } from './job-body.ts';

const POLL_AFTER_SECONDS = 1;
const EXTENSIONS = { 'audio/mpeg': 'mp3', 'audio/wav': 'wav' } as const;

export interface JobsOptions extends JobLinks {
  readonly db: Database;
  readonly store: AudioStore;
}

/** Asynchronous speech: its state and its audio. */
export function jobsOperations({ db, store, ...links }: JobsOptions): JobsOperations<OperationContext> {
  const unknown = () => failure('NOT_FOUND', 'There is no such job.', { field: 'jobId' });

  /**
   * In the order of R50; what has no audio is told as R18 says. Whoever shows no valid sig takes a slot of its address
   * (R13, R48).
   */
  async function getJobAudio({ params, query, headers }: GetJobAudioRequest, context: OperationContext) {
    const { signer } = links;
    const sig = signer && query.sig;
    const isSigned = sig !== undefined && (await signer?.verify(sig, params.jobId.toLowerCase()));
    const limited = await context.admission.take('request', isSigned ? sig : undefined);
    if (limited) return limited;
    if (sig !== undefined && !isSigned) {
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
    const range = context.method === 'GET' && headers['if-range'] === undefined ? headers.range : undefined;
    return serve(job.id, job.audio, job.audio.stored.key, range);
  }

  async function serve(
    jobId: string,
    { mimeType, sizeBytes }: JobAudio,
    key: string,
    header: string | undefined,
  ): Promise<GetJobAudioResult> {
    const range = parseRange(header, sizeBytes);
    if (range === 'unsatisfiable') {
      const details = { field: 'range', rule: 'satisfiable', sizeBytes };
      return {
        status: 416,
        headers: { 'content-range': `bytes */${sizeBytes}` },
        body: errorBody('INVALID_REQUEST', `range must begin inside the ${sizeBytes} bytes of the audio.`, details),
      };
    }
    const found = await store.open(key, range === 'whole' ? undefined : range);
    if (!found) return failure('NOT_FOUND', 'The stored audio is gone.', { field: 'jobId' });
    const shared = {
      'cache-control': PRIVATE,
      'content-disposition': `inline; filename="speech-${jobId}.${EXTENSIONS[mimeType]}"`,
      'accept-ranges': 'bytes',
    } as const;
    if (range === 'whole') {
      const headers = { ...shared, 'content-length': sizeBytes };
      return { status: 200, type: mimeType, headers, body: found.stream };
    }
    const headers = {
      ...shared,
      'content-length': range.end - range.start + 1,
      'content-range': `bytes ${range.start}-${range.end}/${sizeBytes}`,
    };
    return { status: 206, type: mimeType, headers, body: found.stream };
  }

  return {
    getJob: async ({ params }) => {
      const job = await findJob(db, params.jobId);
      if (!job) return unknown();
      return { status: 200, headers: { 'cache-control': PRIVATE }, body: await jobBody(job, links) };
    },
    getJobAudio: async (request, context) => {
      try {
        return await getJobAudio(request, context);
      } catch (error) {
        if (!(error instanceof StoreError)) throw error;
        context.log.error({ err: error }, 'stored audio can not be read');
        return failure('CONFIG_ERROR', 'The audio store can not be reached. Try again in a moment.', {
          reason: 'audio_store_unavailable',
        });
      }
    },
  };
}
