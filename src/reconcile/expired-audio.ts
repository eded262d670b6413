import type { Database } from '../db/database.ts';
import { deleteAudio, expiredJobs } from '../jobs/job.ts';
import { testPoint } from '../lib/test-point.ts';
import { PREPAID_AUDIO_SECONDS } from '../payments/prepaid/prepaid-balance.ts';
import { REPLAY_WINDOW_SECONDS } from '../payments/x402/payment.ts';
import { isAudioNeeded } from '../payments/x402/payment-states.ts';
import type { AudioStore, DatedAudio } from '../speech/store/audio-store.ts';
import { Failures, type Reconciler, reconciler } from './reconciler.ts';

/** Once a minute at the default interval. */
const JOB_AUDIO_TURNS = 4;
const JOBS = 100;

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

const secondsAgo = (seconds: number) => new Date(Date.now() - seconds * 1000);

/** Deletes the minutes of which no payment can be replayed any more, nor turn out to be paid. Counts objects. */
export const expiredPaymentAudio = (db: Database, store: AudioStore): Reconciler =>
  expiredMinutes('payment_audio', store.dated.x402, REPLAY_WINDOW_SECONDS, (minute) => isAudioNeeded(db, minute));

/** The ten minutes begin when the response is sent: at most a longest synthesis and a minute after the id was made. */
const ANSWER_SECONDS = 660;

/** Counts objects. */
export const expiredPrepaidAudio = (store: AudioStore): Reconciler =>
  expiredMinutes('prepaid_audio', store.dated.prepaid, PREPAID_AUDIO_SECONDS + ANSWER_SECONDS, async () => false);

const expiredMinutes = (
  name: string,
  audio: DatedAudio,
  keptSeconds: number,
  isNeeded: (minute: number) => Promise<boolean>,
): Reconciler =>
  reconciler(name, 1, async ({ signal, done }, failures) => {
    for (const minute of await audio.minutes(secondsAgo(keptSeconds))) {
      if (signal.aborted) return;
      try {
        if (await isNeeded(minute)) continue;
        done(await audio.deleteMinute(minute));
        testPoint('stored minute deleted');
      } catch (error) {
        failures.add(error);
      }
    }
  });
