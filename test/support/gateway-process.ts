import type { Test } from 'tap';
import { freePort } from '../../src/sandbox/free-port.ts';
import { startChild } from './child.ts';

/** On a machine that is busy with many of them. */
const START_MS = 240_000;

export type GatewayProcess = Awaited<ReturnType<typeof startGatewayProcess>>;

/**
 * Runs `src/main.ts` on a free port with these settings; resolves when it listens. It ends when it is killed, by kill -9,
 * and the next one listens elsewhere.
 */
export async function startGatewayProcess(t: Test, env: Record<string, string>, args: string[] = []) {
  const port = await freePort();
  const child = startChild(t, 'src/main.ts', { PORT: String(port), ...env }, args);
  await child.printed(/listens on/, START_MS);
  let isKilled = false;
  return {
    url: `http://127.0.0.1:${port}`,
    child,
    kill: async () => {
      isKilled = true;
      await child.stop('SIGKILL');
    },
    get isKilled() {
      return isKilled;
    },
  };
}
