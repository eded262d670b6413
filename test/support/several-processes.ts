import type { Test } from 'tap';
import { freePort } from '../../src/sandbox/free-port.ts';
import { type Child, startChild } from './child.ts';
import { testDatabase } from './database.ts';
import { send, startGateway } from './gateway.ts';
import { testUpstream } from './stub-upstream.ts';
import { until } from './until.ts';

const SETTLE_MS = 30_000;

export type SeveralProcesses = Awaited<ReturnType<typeof startSeveral>>;

/** Where the processes are to listen, and what by. */
export async function severalSettings(t: Test, env: Record<string, string> = {}) {
  const { url: databaseUrl } = await testDatabase(t);
  const upstream = await testUpstream(t);
  const port = await freePort();
  const adminPort = await freePort();
  const settings: Record<string, string> = {
    WEB_CONCURRENCY: '2',
    PORT: String(port),
    ADMIN_PORT: String(adminPort),
    DATABASE_URL: databaseUrl,
    SPEECH_BASE_URL: upstream.url,
    SPEECH_TIMEOUT_MS: '30000',
    STRIPE_SECRET_KEY: 'sk_test_gateway',
    STRIPE_API_BASE: 'http://127.0.0.1:1',
    RECONCILE_INTERVAL_MS: '86400000',
    ...env,
  };
  return { env: settings, databaseUrl, upstream, port, adminPort };
}

/** Runs `src/main.ts` with two processes, unless WEB_CONCURRENCY says otherwise; resolves when all listen on one port. */
export async function startSeveral(
  t: Test,
  settings: Record<string, string> = {},
  whileStarting: (child: Child) => Promise<void> = async () => {},
) {
  const { env, databaseUrl, upstream, port, adminPort } = await severalSettings(t, settings);
  /** Another one on the same database, which tells what is in it. */
  const gateway = await startGateway(t, {}, { databaseUrl });
  const child = startChild(t, 'src/main.ts', env);
  const adminUrl = `http://127.0.0.1:${adminPort}`;
  await whileStarting(child);
  await child.printed(/listens on/);
  /** The lines of the log with this message. */
  const logged = (msg: string | RegExp) => linesOf(child).filter((line) => new RegExp(msg).test(String(line.msg)));
  /** The processes that have begun to listen, in that order, those included that have ended since. */
  const pids = () => [...new Set(logged('^Server listening at').map(({ pid }) => pid as number))];
  // The log comes in batches, after the announcement.
  await until(() => pids().length >= Number(env.WEB_CONCURRENCY));
  return {
    ...{ url: `http://127.0.0.1:${port}`, adminUrl, port, child, env, upstream, gateway, logged, pids },
    /** What the operators' listener tells of the processes, such as `2 of 2 listen`. */
    processes: async () => {
      const reply = await fetch(`${adminUrl}/readyz`);
      const { checks } = (await reply.json()) as { checks: { processes: string } };
      return checks.processes;
    },
    /** A sample of `/metrics` by its name and labels. */
    metric: async (name: string) => {
      const text = await (await fetch(`${adminUrl}/metrics`)).text();
      const line = text.split('\n').find((candidate) => candidate.startsWith(`${name} `));
      return line === undefined ? undefined : Number(line.slice(name.length + 1));
    },
  };
}

/** Sends that many requests at once, each on a connection of its own; tells their statuses. */
export async function ask(url: string, count: number, path = '/'): Promise<number[]> {
  const replies = Array.from({ length: count }, () => send(url, path, { headers: { connection: 'close' } }));
  return (await Promise.all(replies)).map(({ status }) => status);
}

/** Waits until a process of this id is gone. */
export const untilGone = (pid: number): Promise<void> => until(() => !isThere(pid), SETTLE_MS);

export function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

const linesOf = (child: Child): Record<string, unknown>[] =>
  child
    .output()
    .split('\n')
    .filter((line) => line.startsWith('{') && line.endsWith('}'))
    .map((line) => JSON.parse(line));
