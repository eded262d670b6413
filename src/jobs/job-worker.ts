import { randomUUID } from 'node:crypto';
import { QueueWorker } from '../queue/queue-worker.ts';
import { TASK, type TaskPayload } from './enqueue.ts';
import { beat, type Holdings, signOff } from './heartbeat.ts';
import { type JobRunnerOptions, runJob } from './run-job.ts';
import { takeOverJobs } from './take-over.ts';

export interface JobWorkerOptions extends JobRunnerOptions {
  readonly databaseUrl: string;
  /** False where a pooler between knows no names of statements. */
  readonly namedStatements: boolean;
  /** Jobs that run at the same time. */
  readonly concurrency: number;
}

/** Connections beside one for each job: the one that listens, and one for jobs that have ended. */
const EXTRA_CONNECTIONS = 2;

/**
 * Runs the jobs of the queue in this process. As long as it can tell the database that it lives, it owns the jobs it
 * has claimed and names; with each heartbeat it also takes over the jobs that nobody works on. Starts, and starts again,
 * when the database can be reached.
 */
export class JobWorker {
  readonly #id = randomUUID();
  readonly #options: JobWorkerOptions;
  readonly #queue: QueueWorker;
  /** What the queue has handed over and is not done with yet. */
  readonly #inHand = new Set<{ readonly jobId: string; readonly entryId: string }>();
  /** When the last heartbeat was, by the database's clock. */
  #lastBeat: string | undefined;

  constructor(options: JobWorkerOptions) {
    this.#options = options;
    const { db, databaseUrl, namedStatements, concurrency, log } = options;
    this.#queue = new QueueWorker(
      {
        name: 'job worker',
        task: TASK,
        run: (payload, entryId, signal) => this.#run((payload as TaskPayload).jobId, entryId, signal),
        beat: (queuePool) => this.#beat(queuePool),
        afterBeat: () => this.#takeOver(),
        signOff: () => signOff(db, this.#id),
      },
      { databaseUrl, namedStatements, concurrency, maxConnections: concurrency + EXTRA_CONNECTIONS, log },
    );
  }

  start(): void {
    this.#queue.start();
  }

  /** Takes no more jobs, lets those that run end, and gives back what takes too long: those are queued again. */
  stop(): Promise<void> {
    return this.#queue.stop();
  }

  async #beat(queuePool: string | undefined): Promise<void> {
    const holdings = this.#lastBeat === undefined ? undefined : this.#holdings(this.#lastBeat);
    this.#lastBeat = await beat(this.#options.db, this.#id, queuePool, holdings);
  }

  async #takeOver(): Promise<void> {
    const count = await takeOverJobs(this.#options.db);
    if (count > 0) this.#options.log.warn({ count }, 'jobs that nobody works on were queued again');
  }

  #holdings(since: string): Holdings {
    const inHand = [...this.#inHand];
    return { jobIds: inHand.map(({ jobId }) => jobId), entryIds: inHand.map(({ entryId }) => entryId), since };
  }

  async #run(jobId: string, entryId: string, signal: AbortSignal): Promise<void> {
    const item = { jobId, entryId };
    this.#inHand.add(item);
    try {
      await runJob(jobId, this.#id, this.#options, signal);
    } finally {
      this.#inHand.delete(item);
    }
  }
}
