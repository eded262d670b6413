import closeWithGrace from 'close-with-grace';
import type { Logger } from 'pino';
import { createAdminServer } from '../admin/admin-server.ts';
import { openDatabase } from '../db/database.ts';
import type { Config } from '../settings/config.ts';
import type { Role } from '../settings/role.ts';
import { announce, listening } from './announce.ts';
import { Fleet, StartFailed } from './fleet.ts';
import { stopPatienceMs } from './stop-patience.ts';
import { SummedMetrics } from './summed-metrics.ts';

/** How much longer than each process the primary waits, which has to see them end. */
const RESERVE_MS = 1_000;

/**
 * Runs WEB_CONCURRENCY gateway processes on one port, with one operators' listener, until a signal stops them as one.
 * This process hands connections over to them, and serves nothing itself.
 */
export async function runPrimary(config: Config, role: Role, log: Logger): Promise<void> {
  const count = config.webConcurrency;
  const fleet = new Fleet({ count, role, log });
  const metrics = new SummedMetrics();
  const { databaseUrl, namedStatements } = config;
  const db = openDatabase(databaseUrl, { maxConnections: 1, namedStatements });
  const leaving = new AbortController();
  const admin = createAdminServer({
    db,
    leaving: leaving.signal,
    metrics: { contentType: metrics.contentType, scrape: () => metrics.scrape(fleet.listening) },
    names: config.admin.names,
    processes: () => ({ listening: fleet.listening.length, wanted: count }),
  });
  const close = () => fleet.stop().finally(() => Promise.all([admin.close(), db.destroy()]));
  const giveUp = (why: string) => {
    log.error(why);
    fleet.kill();
  };
  let isStopping = false;
  closeWithGrace(
    {
      delay: stopPatienceMs(config) + RESERVE_MS,
      logger: log,
      onSecondSignal: (signal) => giveUp(`second ${signal}, exiting`),
      onTimeout: () => giveUp('the gateway processes did not stop in time'),
    },
    async ({ err }) => {
      isStopping = true;
      leaving.abort();
      if (err) log.fatal({ err }, 'stopping after an unexpected error');
      await close();
    },
  );

  if (config.adminPort !== undefined) await admin.listen({ host: config.admin.host, port: config.adminPort });
  const failure = await fleet.start().catch((error) => error);
  if (isStopping) return;
  if (failure instanceof StartFailed) {
    await close();
    process.exit(failure.exitCode);
  }
  announce(log, `${listening(config)}, with ${count} processes`);
}
