const killAt = process.env.NODE_ENV === 'test' ? process.env.SPEECHGATE_TEST_KILL_AT : undefined;

/**
 * A named point of the code at which a test can end the process as `kill -9` does: NODE_ENV is `test`, and
 * SPEECHGATE_TEST_KILL_AT is the name. Does nothing otherwise.
 */
export function testPoint(name: string): void {
  if (killAt === name) process.kill(process.pid, 'SIGKILL');
}
