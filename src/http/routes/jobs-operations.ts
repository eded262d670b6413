import { buffer } from 'node:stream/consumers';
import type { JobsOperations } from '../../contract/operations.ts';
import type { TtsJob } from '../../contract/types.ts';
import type { Database } from '../../db/database.ts';
import { findJob, type Job } from '../../jobs/job.ts';
import { captionsKey, findSegments, openSegments } from '../../jobs/job-segments.ts';
import type { AudioStore, ByteRange } from '../../speech/store/audio-store.ts';
import type { LinkSigner } from '../../speech/store/link-token.ts';
import type { OperationContext } from '../operations.ts';
import { PRIVATE_CACHE } from '../reply.ts';
import { failure } from '../structured-error.ts';
import { type AudioLink, answerLink, answerStoredAudio } from './stored-audio.ts';

const POLL_AFTER_SECONDS = 1;
const hintsOf = (link: 'audio' | 'captions') => ({
  invalid: `Read the job: links.${link} has a valid link until the audio is deleted. After that, a new request is charged again.`,
  missing: `Take the link from links.${link} of the job.`,
});

export interface JobLinks {
  readonly baseUrl: string;
  readonly signer: LinkSigner | undefined;
}

export function jobsOperations(db: Database, store: AudioStore, links: JobLinks): JobsOperations<OperationContext> {
  const { baseUrl, signer } = links;
  const unknown = () => failure('NOT_FOUND', 'This job does not exist. Check jobId.', { field: 'jobId' });

  /** Refuses in this order: unknown, failed, running, not stored (R50). */
  async function findStored(id: string) {
    const job = await findJob(db, id);
    if (!job) return unknown();
    if (job.state === 'failed') {
      const message =
        'The job failed, so it has no audio; its error says why. To try again, send the text with a new idempotency-key or none. You were not charged.';
      return failure('NOT_FOUND', message, { field: 'jobId' });
    }
    if (!job.audio) {
      const details = { status: job.state, statusUrl: `${baseUrl}/tts/jobs/${job.id}` };
      const answer = failure('JOB_NOT_READY', 'The job is not completed yet. Retry in a moment.', details);
      return { ...answer, headers: { 'retry-after': POLL_AFTER_SECONDS } };
    }
    const { mimeType, sizeBytes, stored } = job.audio;
    if (!stored) {
      const message =
        'The audio of this job is not stored: storeAudio was false, or its retention has ended. The job was charged. To get audio, send the text again, which is charged again.';
      return failure('AUDIO_NOT_STORED', message);
    }
    return { id: job.id, isLong: job.progress !== undefined, key: stored.key, mimeType, sizeBytes };
  }

  async function findAudio(id: string) {
    const found = await findStored(id);
    if ('status' in found) return found;
    const { isLong, key, mimeType, sizeBytes } = found;
    if (!isLong) return { open: store.open.bind(store, key), mimeType, sizeBytes };
    const segments = await findSegments(db, found.id);
    return { open: (range?: ByteRange) => openSegments(store, segments, range), mimeType, sizeBytes };
  }

  async function findCaptions(id: string) {
    const found = await findStored(id);
    if ('status' in found) return { outcome: 'refused' as const, refusal: found };
    const captions = found.isLong ? await store.open(captionsKey(found.id)) : undefined;
    if (!captions) {
      const message = found.isLong
        ? 'The captions of this job no longer exist. The audio may still be at links.audio of the job.'
        : 'This job has no captions. Only the job of a long text has them.';
      const refusal = failure('NOT_FOUND', message, { field: 'jobId' });
      return { outcome: 'refused' as const, refusal };
    }
    const body = await buffer(captions.stream);
    const disposition = `inline; filename="speech-${found.id}.vtt"`;
    const headers = { 'cache-control': PRIVATE_CACHE, 'content-disposition': disposition } as const;
    const answer = () => ({ status: 200, type: 'text/vtt', headers, body }) as const;
    return { outcome: 'found' as const, answer };
  }

  const linkOf = (
    to: 'audio' | 'captions',
    jobId: string,
    sig: string | undefined,
    headers: AudioLink['headers'] = {},
  ): AudioLink => {
    return { signer, sig, id: jobId.toLowerCase(), parameter: 'jobId', hints: hintsOf(to), headers };
  };

  return {
    getJob: async ({ params }) => {
      const job = await findJob(db, params.jobId);
      if (!job) return unknown();
      return { status: 200, headers: { 'cache-control': PRIVATE_CACHE }, body: await jobBody(job, links) };
    },
    getJobAudio: ({ params, query, headers }, context) => {
      const link = linkOf('audio', params.jobId, query.sig, headers);
      return answerStoredAudio(link, context, () => findAudio(link.id));
    },
    getJobCaptions: ({ params, query }, context) => {
      const link = linkOf('captions', params.jobId, query.sig);
      return answerLink(link, context, () => findCaptions(link.id));
    },
  };
}

/** A job as the contract shows it, with absolute links (R52). */
export async function jobBody(job: Job, { baseUrl, signer }: JobLinks): Promise<TtsJob> {
  const status = `${baseUrl}/tts/jobs/${job.id}`;
  const stored = job.audio?.stored;
  const sig = stored && signer && (await signer.sign(job.id, stored.expiresAt));
  const urlOf = (what: string) => `${status}/${what}${sig === undefined ? '' : `?sig=${sig}`}`;
  const audioUrl = stored ? urlOf('audio') : null;
  return {
    jobId: job.id,
    status: job.state,
    traceId: job.traceId,
    createdAt: job.createdAt.toISOString(),
    updatedAt: job.updatedAt.toISOString(),
    startedAt: job.startedAt?.toISOString() ?? null,
    completedAt: job.completedAt?.toISOString() ?? null,
    ...(job.progress && { progress: job.progress }),
    error: job.error,
    result: job.audio && {
      audioUrl,
      stored: stored !== null,
      mimeType: job.audio.mimeType,
      sizeBytes: job.audio.sizeBytes,
    },
    links: { status, audio: audioUrl, ...(stored && job.progress && { captions: urlOf('captions') }) },
  };
}
