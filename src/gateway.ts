import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { createApp } from './app.ts';
import type { Config } from './config/config.ts';
import type { Role } from './config/role.ts';
import { EXIT_CONFIG } from './lib/arguments.ts';
import { stopOnce } from './lib/stop-once.ts';
import { listenForOperators, STOP, STOPPED, STOPPING, stopTimeoutMs, UNEXPECTED } from './primary.ts';

const NOT_RELOADED =
  'SIGHUP changed nothing, because reloading needs WEB_CONCURRENCY of at least 2. Restart the service to apply changes';

export async function runGateway(config: Config, role: Role, log: Logger): Promise<void> {
  const app = await createApp(config, log);
  const { worker } = cluster;
  const say = log.child({}, { level: 'info' });
  const onHangUp = () => worker || log.warn(NOT_RELOADED);
  const stop = stopOnce({ timeoutMs: stopTimeoutMs(config), logger: log, onHangUp }, async (err) => {
    if (!worker) say.info(STOPPING);
    if (err) log.fatal({ err }, UNEXPECTED);
    else if (role !== 'worker') {
      app.leave();
      await sleep(config.stopDrainMs);
    }
    await app.close();
    if (worker) await returnConnections(worker);
    else say.info(STOPPED);
  });
  if (worker) {
    worker.on('message', async (message) => {
      if (message === STOP) return stop();
      const metrics = await app.metrics.read();
      if (worker.isConnected()) worker.send(metrics);
    });
    worker.on('disconnect', () => {
      // Otherwise Node exits the worker at once and drops its running requests.
      worker.exitedAfterDisconnect = true;
      stop();
    });
  }

  const started = await app.start(role);
  if (started.outcome === 'refused') return refuse(started.reason);
  if (worker) return;
  const unusable = await listenForOperators(app.admin, config);
  if (unusable) return refuse(unusable);
  say.info(`${config.serviceName} ${started.work}`);

  async function refuse(reason: string): Promise<void> {
    console.error(`speechgate can't start:\n${reason}`);
    await app.close();
    process.exit(EXIT_CONFIG);
  }
}

/**
 * Gives back the connections that the primary has sent here since the server closed. Another process answers them. Otherwise
 * Node would lose them at the exit of this process (lib/internal/cluster/round_robin_handle.js, 20.20 to 26).
 */
async function returnConnections(worker: Worker): Promise<void> {
  if (!worker.isConnected()) return;
  const disconnected = once(worker, 'disconnect');
  worker.disconnect();
  await disconnected;
}
