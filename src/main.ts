import closeWithGrace from 'close-with-grace';
import { createApp } from './app.ts';
import { describeMismatch } from './ledger/belonging.ts';
import { within } from './lib/within.ts';
import { createLogger } from './observability/logger.ts';
import { describeFaults, readConfig } from './settings/config.ts';
import { readRole } from './settings/role.ts';

/** EX_CONFIG of sysexits(3): the settings can't be used (R47). */
const EXIT_CONFIG = 78;
/** What stopping may take beyond the slowest synthesis, before the process ends all the same. */
const STOP_RESERVE_MS = 30_000;

/** How long a start waits for a database that does not answer, to learn whose money it holds. */
const BELONGING_PATIENCE_MS = 5_000;

const role = readRole(process.argv.slice(2));
if (!role) {
  console.error("speechgate can't start: the only argument is --role=web or --role=worker; without it, it does both.");
  process.exit(EXIT_CONFIG);
}
const result = readConfig(process.env);
for (const { name, meant } of result.misspelt)
  console.error(`${name} is no setting and changes nothing. Is ${meant} meant?`);
if (result.outcome === 'faulty') {
  console.error(`speechgate can't start:\n${describeFaults(result.faults)}`);
  process.exit(EXIT_CONFIG);
}

const { config } = result;
const log = createLogger(config.logLevel);
if (role === 'worker' && !config.speech) {
  console.error("speechgate can't start:\nSPEECH_BASE_URL is not set. A worker needs it: it speaks the jobs.");
  process.exit(EXIT_CONFIG);
}
const app = await createApp(config, log);
closeWithGrace({ delay: (config.speech?.timeoutMs ?? 0) + STOP_RESERVE_MS, logger: log }, async ({ err }) => {
  if (err) log.fatal({ err }, 'stopping after an unexpected error');
  await app.close();
});

await within(BELONGING_PATIENCE_MS, app.belonging.check());
if (app.belonging.mismatch) {
  console.error(`speechgate can't start:\n${describeMismatch(app.belonging.mismatch)}`);
  await app.close();
  process.exit(EXIT_CONFIG);
}
if (config.adminPort !== undefined) await app.admin.listen({ host: config.admin.host, port: config.adminPort });
if (role !== 'web') {
  app.worker?.start();
  app.mailer?.start();
}
if (role === 'worker') {
  announce(`${config.serviceName} runs jobs, ${config.jobs.concurrency} at a time`);
} else {
  await app.server.listen({ host: config.host, port: config.port });
  announce(`${config.serviceName} listens on ${config.baseUrl} (${config.host}:${config.port})`);
}

/** A line like those of the log, whatever the level of that is. */
function announce(msg: string): void {
  console.log(JSON.stringify({ level: 30, time: new Date().toISOString(), msg }));
}
