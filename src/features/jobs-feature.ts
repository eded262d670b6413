import { addJobGauges } from '../admin/gauges.ts';
import { addAudioRoomGauges } from '../admin/watch-gauges.ts';
import type { AudioStore } from '../audio/audio-store.ts';
import { createLinkSigner, type LinkSigner } from '../audio/link-token.ts';
import { openAudioStore } from '../audio/open-store.ts';
import type { JobsOperations } from '../contract/operations.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { JobWorker } from '../jobs/job-worker.ts';
import { jobsOperations } from '../operations/jobs-operations.ts';
import { jobReconcilers } from '../reconcile/reconcilers.ts';
import type { Feature, SharedParts } from './feature.ts';
import type { Speaking } from './speech-feature.ts';

export interface Jobs extends Feature {
  readonly operations: { readonly jobs: JobsOperations<OperationContext> };
  /** Where audio is kept, that of payments too. */
  readonly store: AudioStore;
  /** Undefined where audio links are not signed. */
  readonly signer: LinkSigner | undefined;
  /** Runs jobs once it is started; undefined without a speech provider. */
  readonly worker: JobWorker | undefined;
}

/** Asynchronous speech: its queue, its audio and the links to that. */
export function openJobs({ config, db, metrics, log }: SharedParts, speaking: Speaking | undefined): Jobs {
  const { databaseUrl, namedStatements, baseUrl } = config;
  const { concurrency, audioRetentionSeconds: retentionSeconds, audioStore, signingSecrets } = config.jobs;
  const store = openAudioStore(audioStore);
  const signer = signingSecrets.length > 0 ? createLinkSigner('job-audio', signingSecrets) : undefined;
  if (!signer) log.warn('audio links are not signed: JOB_SIGNING_SECRET is unset');
  const worker =
    speaking &&
    new JobWorker({
      ...{ ...speaking, db, databaseUrl, namedStatements, store },
      ...{ retentionSeconds, concurrency, metrics, log },
    });
  addJobGauges(metrics, db);
  addAudioRoomGauges(metrics, store);
  return {
    operations: { jobs: jobsOperations({ db, store, baseUrl, signer }) },
    store,
    signer,
    worker,
    reconcilers: jobReconcilers(db, store),
    end: async () => worker?.stop(),
    close: () => store.close(),
  };
}
