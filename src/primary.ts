import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { AggregatorRegistry, Registry } from 'prom-client';
import { type Config, describeFaults, readConfig } from './config/config.ts';
import { describeAddress } from './config/edge-settings.ts';
import type { Role } from './config/role.ts';
import { openDatabase } from './db/database.ts';
import { createAdminServer } from './http/admin/admin-server.ts';
import { listen } from './http/listen.ts';
import { EXIT_CONFIG } from './lib/arguments.ts';
import { stopOnce } from './lib/stop-once.ts';

export const STOP = 'stop';
const SCRAPE = 'scrape';
export const STOPPING = 'stopping: the process first finishes its running requests';
export const STOPPED = 'stopped';
export const UNEXPECTED =
  'an unexpected error (see err) stops this process, which first finishes its running requests. If neither the primary process nor a supervisor such as systemd replaces this process, start the service again';
const STOP_RESERVE_MS = 30_000;
const RESTART_MS = 1_000;
const SCRAPE_TIMEOUT_MS = 5_000;
export const stopTimeoutMs = ({ speech, stopDrainMs }: Config): number =>
  stopDrainMs + (speech?.timeoutMs ?? 0) + STOP_RESERVE_MS;

export async function runPrimary(config: Config, role: Role, log: Logger): Promise<void> {
  const { databaseUrl, namedStatements, webConcurrency: count, serviceName, baseUrl } = config;
  const say = log.child({}, { level: 'info' });
  const listening = new Map<Worker, Role>();
  const replaced = new Set<Worker>();
  let reloading = Promise.resolve();
  const leaving = new AbortController();
  const db = openDatabase(databaseUrl, { maxConnections: 1, namedStatements });
  const admin = createAdminServer({
    db,
    leaving: leaving.signal,
    metrics: { contentType: Registry.PROMETHEUS_CONTENT_TYPE, scrape: () => scrapeAll([...listening.keys()]) },
    names: config.admin.names,
    processes: () => ({ listening: listening.size, wanted: count }),
  });
  stopOnce({ timeoutMs: stopTimeoutMs(config), logger: log, onHangUp: reload }, async (err) => {
    say.info(STOPPING);
    if (err) log.fatal({ err }, UNEXPECTED);
    leaving.abort();
    await Promise.all([...Object.values(cluster.workers ?? {}).map((worker) => worker && stop(worker)), admin.close()]);
    await db.destroy();
    say.info(STOPPED);
  });

  const unusable = await listenForOperators(admin, config);
  if (unusable) {
    console.error(`speechgate can't start:\n${unusable}`);
    process.exit(EXIT_CONFIG);
  }
  // The first process starts alone, so that a reason not to start is logged once.
  const exit = (code: number | null) => process.exit(code ?? 1);
  const starting = start(role, exit).then(() =>
    Promise.all(Array.from({ length: count - 1 }, () => start('web', exit))),
  );
  reloading = starting.then(() => {});
  await starting;
  if (leaving.signal.aborted) return;
  const started = `${serviceName} listens on ${baseUrl} (${describeAddress(config)}), with ${count} processes`;
  say.info(started);

  function reload(): void {
    const failed = (err: unknown) =>
      log.error(
        { err },
        'the reload failed, and processes that were not replaced keep serving with the old settings. Fix the cause in err or in the lines before this one, then reload again',
      );
    reloading = reloading.then(replaceAll).catch(failed);
  }

  /** Each new process reads all files anew, and listens before the old one stops. */
  async function replaceAll(): Promise<void> {
    const found = readConfig(process.env);
    if (found.outcome === 'faulty')
      return log.error(
        `not reloaded, because settings are wrong; the old ones stay in use. Fix them: ${describeFaults(found.faults)}`,
      );
    if (found.config.databaseUrl !== databaseUrl)
      return log.error(
        'not reloaded, because DATABASE_URL has changed; the old settings stay in use. Restart the service to apply it',
      );
    for (const [worker, ofRole] of [...listening]) {
      if (leaving.signal.aborted) return;
      // One that has exited meanwhile is replaced already, by one that reads the new files.
      if (!listening.has(worker)) continue;
      // If it exits from here on, the new one takes its place.
      replaced.add(worker);
      await new Promise<void>((resolve, reject) => {
        const failed = (code: number | null, signal: string) => {
          replaced.delete(worker);
          reject(new Error(`a new gateway process ended by ${endOf(code, signal)} before it could serve requests`));
        };
        start(ofRole, failed).then(resolve);
      });
      listening.delete(worker);
      if (!worker.isDead()) await stop(worker);
    }
    say.info(
      'reloaded: the files of the catalog, keys and secrets were read again. A changed environment variable or a new release needs a restart',
    );
  }

  function start(ofRole: Role, onFailure?: (code: number | null, signal: string) => void): Promise<void> {
    cluster.setupPrimary({ args: ofRole === 'all' ? [] : [`--role=${ofRole}`], serialization: 'advanced' });
    const worker = cluster.fork();
    worker.once('exit', (code, signal) => {
      const hasListened = listening.delete(worker);
      if (leaving.signal.aborted || replaced.delete(worker)) return;
      if (!hasListened && onFailure) return onFailure(code, signal);
      log.error(
        { ended: worker.process.pid, code, signal },
        `a gateway process ended by ${endOf(code, signal)}, and a new one starts. ${UNFINISHED} If this repeats, find the cause in its lines before this one`,
      );
      setTimeout(() => leaving.signal.aborted || start(ofRole), RESTART_MS);
    });
    worker.once('listening', () => listening.set(worker, ofRole));
    return new Promise((resolve) => void worker.once('listening', () => resolve()));
  }

  async function stop(worker: Worker): Promise<void> {
    const ended = once(worker, 'exit');
    if (!listening.has(worker) && !replaced.has(worker)) await Promise.race([once(worker, 'listening'), ended]);
    if (worker.isConnected()) worker.send(STOP);
    const [code, signal] = await ended;
    if (code !== 0)
      throw new Error(
        `a gateway process ended by ${endOf(code, signal)} while it stopped. ${UNFINISHED} Find the cause in its lines before this one`,
      );
  }
}

/** What becomes of the requests of a process that ended. */
const UNFINISHED =
  'Card and prepaid credit of its unfinished requests is given back, its jobs run again, and unclear USDC payments are looked up on the chain.';

const endOf = (code: number | null, signal: string | null): string =>
  signal === 'SIGKILL' ? 'SIGKILL, perhaps for lack of memory' : (signal ?? `exit code ${code}`);

/**
 * The metrics of the processes that listen, added up. prom-client's `clusterMetrics` fails for 5 s when one of the others
 * begins or ends.
 */
async function scrapeAll(workers: readonly Worker[]): Promise<string> {
  const answers = (await Promise.all(workers.map(scrapeOne))).flat();
  if (answers.length === 0) throw new Error('no gateway process listens');
  return AggregatorRegistry.aggregate(answers).metrics();
}

/** Returns nothing if the process ends instead. */
async function scrapeOne(worker: Worker): Promise<object[][]> {
  const settled = new AbortController();
  const signal = AbortSignal.any([settled.signal, AbortSignal.timeout(SCRAPE_TIMEOUT_MS)]);
  const answered = once(worker, 'message', { signal }).then(([metrics]) => [metrics]);
  const ended = once(worker, 'exit', { signal }).then(() => []);
  try {
    if (worker.isConnected()) worker.send(SCRAPE);
    return await Promise.race([answered, ended]);
  } finally {
    settled.abort();
  }
}

/** @returns what is wrong with ADMIN_PORT or ADMIN_HOST */
export async function listenForOperators(
  server: FastifyInstance,
  { adminPort: port, admin: { host } }: Config,
): Promise<string | undefined> {
  if (port === undefined) return undefined;
  return listen({ server, host, port, settings: { host: 'ADMIN_HOST', port: 'ADMIN_PORT' } });
}
