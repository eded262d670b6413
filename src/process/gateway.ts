import { setTimeout as sleep } from 'node:timers/promises';
import closeWithGrace from 'close-with-grace';
import type { Logger } from 'pino';
import { createApp } from '../app.ts';
import { describeMismatch } from '../ledger/belonging.ts';
import { within } from '../lib/within.ts';
import type { Config } from '../settings/config.ts';
import type { Role } from '../settings/role.ts';
import type { Telemetry } from '../telemetry/start.ts';
import { announce, listening } from './announce.ts';
import { EXIT_CONFIG } from './exit-codes.ts';
import { followPrimary, GROUP_SIGNALS } from './follow-primary.ts';
import { stopPatienceMs } from './stop-patience.ts';

/** How long a start waits for a database that does not answer, to learn whose money it holds, and what is paused. */
const BELONGING_PATIENCE_MS = 5_000;

/** How long a stop waits for what telemetry has not sent yet. */
const TELEMETRY_PATIENCE_MS = 2_000;

export interface GatewayParts {
  /** A primary has forked it, which has the operators' listener, announces it, and tells it to stop. */
  readonly isForked: boolean;
  /** Undefined where it is off. */
  readonly telemetry: Telemetry | undefined;
}

/** Runs the gateway in this process, until a signal stops it. */
export async function runGateway(
  config: Config,
  role: Role,
  log: Logger,
  { isForked, telemetry }: GatewayParts,
): Promise<void> {
  const app = await createApp(config, log);
  let isStopping = false;
  const skip = isForked ? [...GROUP_SIGNALS] : [];
  const grace = closeWithGrace({ delay: stopPatienceMs(config), logger: log, skip }, async ({ err }) => {
    isStopping = true;
    if (err) log.fatal({ err }, 'stopping after an unexpected error');
    else if (role !== 'worker') {
      app.leave();
      await sleep(config.stopDrainMs);
    }
    await app.close();
    if (telemetry) await within(TELEMETRY_PATIENCE_MS, telemetry.stop());
  });
  telemetry?.tellFaults((fault) => log.warn({ fault }, 'telemetry does not work as it should'));
  telemetry?.watch(app.metrics);
  const stop = () => {
    if (!isStopping) grace.close();
  };
  if (isForked) followPrimary({ stop, metrics: app.metrics });

  await within(BELONGING_PATIENCE_MS, Promise.all([app.belonging.check(), app.pauses.read()]));
  if (app.belonging.mismatch) {
    console.error(`speechgate can't start:\n${describeMismatch(app.belonging.mismatch)}`);
    await app.close();
    process.exit(EXIT_CONFIG);
  }
  if (config.adminPort !== undefined && !isForked) {
    await app.admin.listen({ host: config.admin.host, port: config.adminPort });
  }
  if (role !== 'web') {
    app.worker?.start();
    app.mailer?.start();
  }
  if (role === 'worker') {
    announce(log, `${config.serviceName} runs jobs, ${config.jobs.concurrency} at a time`);
  } else {
    await app.server.listen({ host: config.host, port: config.port });
    if (!isForked) announce(log, listening(config));
  }
}
