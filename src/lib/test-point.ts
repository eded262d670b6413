const killAt = process.env.NODE_ENV === 'test' ? process.env.SPEECHGATE_TEST_KILL_AT : undefined;
const signal = (process.env.SPEECHGATE_TEST_KILL_SIGNAL ?? 'SIGKILL') as NodeJS.Signals;
let visitsLeft = Number(process.env.SPEECHGATE_TEST_KILL_VISIT ?? 1);

/** Lets a test kill or stop the process here (SPEECHGATE_TEST_KILL_AT, _VISIT, _SIGNAL). */
export function testPoint(name: string): void {
  if (killAt === name && --visitsLeft === 0) process.kill(process.pid, signal);
}
