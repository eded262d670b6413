import type { FastifyInstance } from 'fastify';
import { jobsRoutes } from '../contract/routes.ts';
import { addAudioRoomGauges, addJobGauges } from '../http/admin/gauges.ts';
import { operations } from '../http/operations.ts';
import { jobsOperations } from '../http/routes/jobs-operations.ts';
import { JobWorker } from '../jobs/run-job.ts';
import { jobReconcilers } from '../reconcile/reconcilers.ts';
import { StoreError } from '../speech/store/audio-store.ts';
import { createLinkSigner } from '../speech/store/link-token.ts';
import { openAudioStore } from '../speech/store/open-store.ts';
import type { SharedParts } from './feature.ts';
import type { Speech } from './speech-feature.ts';

/** Faults of a folder that last until somebody corrects them. */
const PERMANENT = ['EACCES', 'EEXIST', 'ELOOP', 'ENAMETOOLONG', 'ENOTDIR', 'EPERM', 'EROFS'];

export type Jobs = ReturnType<typeof openJobs>;

export function openJobs({ config, db, metrics, log }: SharedParts, speaking: Speech['speaking']) {
  const { databaseUrl, namedStatements, baseUrl } = config;
  const {
    concurrency,
    audioRetentionSeconds: retentionSeconds,
    audioStore,
    audioSetting,
    signingSecrets,
  } = config.jobs;
  const store = openAudioStore(audioStore, metrics.outside('store'));
  // A link is signed only where a secret is set (R50).
  const signer = signingSecrets.length > 0 ? createLinkSigner('job-audio', signingSecrets) : undefined;
  if (!signer)
    log.warn('audio links are not signed, so anyone who knows a job id can download its audio. Set JOB_SIGNING_SECRET');
  const worker =
    speaking &&
    new JobWorker({
      ...speaking,
      db,
      databaseUrl,
      namedStatements,
      store,
      retentionSeconds,
      concurrency,
      metrics,
      log,
    });
  const routes = jobsRoutes(jobsOperations(db, store, { baseUrl, signer }));
  addJobGauges(metrics, db);
  addAudioRoomGauges(metrics, store);
  return {
    plugin: async (server: FastifyInstance) => void server.register(operations, { routes }),
    store,
    signer,
    worker,
    reconcilers: jobReconcilers(db, store),
    start: async () => whyUnwritable(),
    end: async () => worker?.stop(),
    close: () => store.close(),
  };

  async function whyUnwritable(): Promise<string | undefined> {
    try {
      await store.tryWrite?.();
      return undefined;
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      const { code, message } = error.cause as NodeJS.ErrnoException;
      const problem = `The folder of ${audioSetting}, ${audioStore.slice('file:'.length)}, is not writable (${code ?? message})`;
      if (code === undefined || PERMANENT.includes(code))
        return `${problem}. Let the user of this process write to that path, or set ${audioSetting} to another folder.`;
      log.error(
        { err: error },
        `${problem}. Fix the cause, such as a full disk; until then, requests that must store audio fail without a charge`,
      );
      return undefined;
    }
  }
}
