import { type DestinationStream, type Logger, pino } from 'pino';

/** Lines are written together: a write for each would be one of the dearest steps of a request. */
const BATCH_BYTES = 2_048;
/** Several processes may share the pipe: up to here a write is not mixed with others' (PIPE_BUF). */
const MAX_WRITE_BYTES = 4_096;
/** How long a line waits for company. */
const BATCH_MS = 100;
/** What waits when nobody reads standard output; lines beyond it are dropped. */
const MAX_WAITING_BYTES = 16 * 1024 * 1024;

/**
 * Standard output. What waits is written when the process ends, also by an error that nobody has caught. What can't be
 * written, since nobody reads or the disk is full, is lost: that must neither end the service nor keep it from its end.
 */
function standardOutput(): DestinationStream {
  const output = pino.destination({
    ...{ dest: 1, sync: false },
    ...{ minLength: BATCH_BYTES, maxWrite: MAX_WRITE_BYTES, periodicFlush: BATCH_MS, maxLength: MAX_WAITING_BYTES },
  });
  output.on('error', () => undefined);
  const flush = output.flushSync.bind(output);
  output.flushSync = () => {
    try {
      flush();
    } catch {
      // Nobody is left who could be told.
    }
  };
  return output;
}

/**
 * The service's log, as JSON lines on standard output. What it must never hold (texts, account ids, signatures, tokens,
 * R40) is not given to it; the redaction is a second net for headers and secrets.
 */
export function createLogger(level: string, destination: DestinationStream = standardOutput()): Logger {
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
      hooks: { streamWrite: escapeUnusual },
    },
    destination,
  );
}

/** The same JSON in printable ASCII: what others have said turns no text and moves no cursor where a log is looked at. */
const escapeUnusual = (line: string): string =>
  line.replace(/[^\n\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

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
