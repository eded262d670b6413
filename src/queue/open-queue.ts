import { EventEmitter } from 'node:events';
import type { FastifyBaseLogger } from 'fastify';
import { runTaskList, type TaskList, type WorkerEvents, type WorkerPool } from 'graphile-worker';
import type { Pool } from 'pg';
import { queueLogger } from './queue-logger.ts';

export interface QueueOptions {
  /** Who works on it, for the log. */
  readonly name: string;
  readonly concurrency: number;
  readonly connections: Pool;
  /** False where a pooler between knows no names of statements. */
  readonly namedStatements: boolean;
  readonly log: FastifyBaseLogger;
  /** It shuts itself down when it could not write the end of an entry; another one is to be opened then. */
  onShutdown(): void;
}

/** Works on the entries of these tasks, until it is shut down. */
export function openQueue(
  tasks: TaskList,
  { name, concurrency, connections, namedStatements, log, onShutdown }: QueueOptions,
): WorkerPool {
  const events: WorkerEvents = new EventEmitter();
  events.once('pool:gracefulShutdown', onShutdown);
  const queue = runTaskList(
    {
      concurrency,
      noHandleSignals: true,
      events,
      logger: queueLogger(log),
      // Ends of entries are written in batches: without, one that fails is an unhandled rejection.
      preset: { worker: { completeJobBatchDelay: 0, failJobBatchDelay: 0, preparedStatements: namedStatements } },
    },
    tasks,
    connections,
  );
  queue.promise.catch((error) => log.warn({ err: error }, `the queue of the ${name} broke`));
  return queue;
}
