const killAt = process.env.NODE_ENV === 'test' ? process.env.SPEECHGATE_TEST_KILL_AT : undefined;
const signal = (process.env.SPEECHGATE_TEST_KILL_SIGNAL ?? 'SIGKILL') as NodeJS.Signals;
let visitsLeft = Number(process.env.SPEECHGATE_TEST_KILL_VISIT ?? 1);

/**
 * A named point of the code at which a test can end the process as `kill -9` does: NODE_ENV is `test`, and
 * SPEECHGATE_TEST_KILL_AT is the name; at the first visit, or at that of SPEECHGATE_TEST_KILL_VISIT. With `SIGSTOP` as
 * SPEECHGATE_TEST_KILL_SIGNAL it stands still there. Does nothing otherwise.
 */
export function testPoint(name: string): void {
  if (killAt === name && --visitsLeft === 0) process.kill(process.pid, signal);
}
