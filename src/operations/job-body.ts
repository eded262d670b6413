import type { LinkSigner } from '../audio/link-token.ts';
import type { TtsJob } from '../contract/types.ts';
import type { Job } from '../jobs/job.ts';

/** How a deployment links to its jobs. */
export interface JobLinks {
  readonly baseUrl: string;
  /** Undefined where links are unsigned. */
  readonly signer: LinkSigner | undefined;
}

/** A job as callers see it; all links are absolute (R52). */
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
