import { type DestinationStream, type Logger, pino } from 'pino';

/**
 * The service's log, as JSON lines on standard output. What it must never hold (texts, account ids, signatures, tokens,
 * R40) is not given to it; the redaction is a second net for headers and secrets.
 */
export function createLogger(level: string, destination: DestinationStream = pino.destination(1)): Logger {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      redact: {
        paths: ['headers', 'req', '*.headers', 'err.config', 'err.raw', 'err.headers', 'err.parameters', 'err.detail'],
        remove: true,
      },
      serializers: { err: describeError },
    },
    destination,
  );
}

/** Type, code and stack of an error and its causes. Drivers put values of a request into other members. */
function describeError(error: unknown): object {
  if (!(error instanceof Error)) return { type: typeof error };
  const { code, statusCode } = error as { code?: unknown; statusCode?: unknown };
  return {
    type: error.name,
    message: error.message,
    ...(code !== undefined && { code }),
    ...(statusCode !== undefined && { statusCode }),
    stack: error.stack,
    ...(error.cause !== undefined && { cause: describeError(error.cause) }),
  };
}
