import pg from 'pg';
import type { Test } from 'tap';

/** A statement as it was handed to the driver. */
export interface RecordedStatement {
  readonly text: string;
  readonly values: readonly unknown[];
}

interface StatementRecorder {
  readonly recorded: readonly RecordedStatement[];
  /** Tells what was recorded, and forgets it. */
  take(): RecordedStatement[];
}

/** Statements of upkeep, which come by the clock and not by a request. */
const UPKEEP = /gateway_process|"graphile_worker"/;

/** Records what this process asks of databases from now on, by whichever connection, until the test ends. */
export function recordStatements(t: Test): StatementRecorder {
  const { query } = pg.Client.prototype;
  const recorded: RecordedStatement[] = [];
  pg.Client.prototype.query = function (this: pg.Client, ...parameters: unknown[]) {
    const [first, second] = parameters as [string | RecordedStatement, unknown[] | undefined];
    const { text, values } = typeof first === 'string' ? { text: first, values: second ?? [] } : first;
    if (!UPKEEP.test(text)) recorded.push({ text, values: values ?? [] });
    return Reflect.apply(query, this, parameters);
  } as typeof query;
  t.teardown(() => {
    pg.Client.prototype.query = query;
  });
  return { recorded, take: () => recorded.splice(0) };
}
