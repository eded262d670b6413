import cluster from 'node:cluster';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { createApp } from './app.ts';
import { type Config, EXIT_CONFIG } from './config/config.ts';
import type { Role } from './config/role.ts';
import { stopOnce } from './lib/stop-once.ts';
import { within } from './lib/within.ts';
import { flushTraces } from './observability/tracing.ts';
import { STOP, stopTimeoutMs } from './primary.ts';

const TELEMETRY_TIMEOUT_MS = 2_000;

export async function runGateway(config: Config, role: Role, log: Logger): Promise<void> {
  const app = await createApp(config, log);
  const { worker } = cluster;
  const stop = stopOnce({ timeoutMs: stopTimeoutMs(config), logger: log }, async (err) => {
    if (err) log.fatal({ err }, 'stopping after an unexpected error');
    else if (role !== 'worker') {
      app.leave();
      await sleep(config.stopDrainMs);
    }
    await app.close();
    await within(TELEMETRY_TIMEOUT_MS, flushTraces());
  });
  if (worker) {
    app.metrics.shareWithPrimary();
    worker.on('message', (message) => message === STOP && stop());
    worker.on('disconnect', () => {
      // Otherwise Node exits the worker at once and drops its running requests.
      worker.exitedAfterDisconnect = true;
      stop();
    });
  }

  const started = await app.start(role);
  if (started.outcome === 'refused') {
    console.error(`speechgate can't start:\n${started.reason}`);
    await app.close();
    process.exit(EXIT_CONFIG);
  }
  if (worker) return;
  if (config.adminPort !== undefined) await app.admin.listen({ host: config.admin.host, port: config.adminPort });
  log.child({}, { level: 'info' }).info(`${config.serviceName} ${started.work}`);
}
