import { createRequire } from 'node:module';
import { hostname } from 'node:os';
import { type DestinationStream, type Logger, pino } from 'pino';

/** Lines are batched, because a write for each would be one of the most expensive steps of a request. */
const BATCH_BYTES = 2_048;
/** PIPE_BUF: up to this size, writes of several processes to one pipe are not mixed. */
const MAX_WRITE_BYTES = 4_096;
const BATCH_MS = 100;
/** Buffered while nobody reads standard output. Further lines are dropped. */
const MAX_WAITING_BYTES = 16 * 1024 * 1024;

/** Flushed at exit, even after an uncaught error. Lost output must neither end the service nor keep it from ending. */
function standardOutput(): DestinationStream {
  const output = pino.destination({
    dest: 1,
    sync: false,
    minLength: BATCH_BYTES,
    maxWrite: MAX_WRITE_BYTES,
    periodicFlush: BATCH_MS,
    maxLength: MAX_WAITING_BYTES,
  });
  output.on('error', () => undefined);
  const flush = output.flushSync.bind(output);
  output.flushSync = () => {
    try {
      flush();
    } catch {}
  };
  return output;
}

export const serviceVersion = (): string => createRequire(import.meta.url)('../../package.json').version;

/** Which of several services wrote a line. */
export const lineOrigin = ({ port }: { readonly port: number }): object => ({
  instance: `${hostname()}:${port}`,
  version: serviceVersion(),
});

/** JSON lines. Texts, ids, signatures and tokens are never passed to it (R40); the redaction is a second safeguard. */
export function createLogger(level: string, destination: DestinationStream = standardOutput()): Logger {
  return pino(
    {
      level,
      base: null,
      formatters: { level: (level) => ({ level }) },
      timestamp: pino.stdTimeFunctions.isoTime,
      redact: { paths: ['headers', 'req', 'res'], remove: true },
      serializers: { err: describeError },
      hooks: { streamWrite: escapeUnusual },
    },
    destination,
  );
}

/** Escapes JSON to printable ASCII, so that foreign text can't change direction or move the cursor on a terminal. */
const escapeUnusual = (line: string): string =>
  line.replace(/[^\n\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** Type, code, message and stack of an error and its causes, and which upstream or statement failed. Drivers put values of a request into other members. */
function describeError(error: unknown): object {
  if (!(error instanceof Error)) return { type: typeof error };
  const { code, statusCode, failure, upstream, statement } = error as { [member: string]: unknown } & Error;
  return {
    type: error.name,
    message: error.message,
    ...(code !== undefined && { code }),
    ...(statusCode !== undefined && { statusCode }),
    ...(failure !== undefined && { failure }),
    ...(upstream !== undefined && { upstream }),
    ...(statement !== undefined && { statement }),
    stack: error.stack,
    ...(error.cause !== undefined && { cause: describeError(error.cause) }),
  };
}
