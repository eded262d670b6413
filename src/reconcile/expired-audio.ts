import type { Database } from '../db/database.ts';
import { deleteAudio, expiredJobs } from '../jobs/job.ts';
import { eachOf } from '../lib/each-of.ts';
import { testPoint } from '../lib/test-point.ts';
import { PREPAID_AUDIO_SECONDS } from '../payments/prepaid/prepaid-balance.ts';
import { deletePaymentAudio, findAudioToDelete, markAudioDeleted } from '../payments/x402/payment-outcomes.ts';
import type { AudioStore } from '../speech/store/audio-store.ts';
import { Failures, type Reconciler } from './reconciler.ts';

/** Once a minute at the default interval. */
const JOB_AUDIO_TURNS = 4;
const JOBS = 100;
const PAYMENTS = 200;
const CONCURRENCY = 8;

/** Deletes the audio of jobs after its retention. Counts jobs. */
export const expiredJobAudio = (db: Database, store: AudioStore): Reconciler => ({
  name: 'expired_audio',
  everyTurns: JOB_AUDIO_TURNS,
  async run({ signal, done }) {
    const failures = new Failures();
    for (let isMore = true; isMore && !signal.aborted; ) {
      const jobs = await expiredJobs(db, JOBS);
      for (const job of jobs) {
        if (signal.aborted) return;
        try {
          if (await deleteAudio(db, store, job)) done(1);
        } catch (error) {
          failures.add(error);
        }
      }
      failures.check();
      isMore = jobs.length === JOBS;
    }
  },
});

/** Deletes audio of failed payments and expired replay windows, and records it even if others fail. Counts payments. */
export const expiredPaymentAudio = (db: Database, store: AudioStore): Reconciler => ({
  name: 'payment_audio',
  async run({ signal, done }) {
    const failures = new Failures();
    for (let isMore = true; isMore && !signal.aborted; ) {
      const payments = await findAudioToDelete(db, PAYMENTS);
      const deleted: typeof payments = [];
      try {
        await eachOf(payments, CONCURRENCY, async (payment) => {
          if (signal.aborted) return;
          try {
            await deletePaymentAudio(store, payment);
            testPoint('stored object deleted');
            deleted.push(payment);
          } catch (error) {
            failures.add(error);
          }
        });
      } finally {
        await markAudioDeleted(db, deleted);
        done(deleted.length);
      }
      failures.check();
      isMore = payments.length === PAYMENTS;
    }
  },
});

/** The ten minutes begin when the response is sent: at most a longest synthesis and a minute after the id was made. */
const ANSWER_SECONDS = 660;

export const expiredPrepaidAudio = (store: AudioStore): Reconciler => ({
  name: 'prepaid_audio',
  run: async ({ done }) =>
    done(await store.deleteTemporary(new Date(Date.now() - (PREPAID_AUDIO_SECONDS + ANSWER_SECONDS) * 1000))),
});
