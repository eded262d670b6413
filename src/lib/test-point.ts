const killAt = process.env.NODE_ENV === 'test' ? process.env.SPEECHGATE_TEST_KILL_AT : undefined;
let visitsLeft = Number(process.env.SPEECHGATE_TEST_KILL_VISIT ?? 1);

/**
 * A named point of the code at which a test can end the process as `kill -9` does: NODE_ENV is `test`, and
 * SPEECHGATE_TEST_KILL_AT is the name; at the first visit, or at that of SPEECHGATE_TEST_KILL_VISIT. Does nothing otherwise.
 */
export function testPoint(name: string): void {
  if (killAt === name && --visitsLeft === 0) process.kill(process.pid, 'SIGKILL');
}
