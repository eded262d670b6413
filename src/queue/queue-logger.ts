import type { FastifyBaseLogger } from 'fastify';
import { Logger } from 'graphile-worker';

/** graphile_worker's own messages, without their details: those hold the entries. */
export function queueLogger(log: FastifyBaseLogger): Logger {
  const levels = { error: 'error', warning: 'warn', info: 'debug', debug: 'trace' } as const;
  return new Logger(() => (level, message) => log[levels[level as keyof typeof levels]](`queue: ${message}`));
}
