import cluster from 'node:cluster';
import { EXIT_CONFIG } from './process/exit-codes.ts';
import { describeFaults, readConfig } from './settings/config.ts';
import { readRole } from './settings/role.ts';

const role = readRole(process.argv.slice(2));
if (!role) {
  console.error("speechgate can't start: the only argument is --role=web or --role=worker; without it, it does both.");
  process.exit(EXIT_CONFIG);
}
const result = readConfig(process.env);
const isOneOfMany = result.outcome === 'read' && result.config.webConcurrency > 1 && role !== 'worker';
const isForked = isOneOfMany && cluster.isWorker;
if (!isForked) {
  for (const { name, meant } of result.misspelt)
    console.error(`${name} is no setting and changes nothing. Is ${meant} meant?`);
}
if (result.outcome === 'faulty') {
  console.error(`speechgate can't start:\n${describeFaults(result.faults)}`);
  process.exit(EXIT_CONFIG);
}

const { config } = result;
if (role === 'worker' && !config.speech) {
  console.error("speechgate can't start:\nSPEECH_BASE_URL is not set. A worker needs it: it speaks the jobs.");
  process.exit(EXIT_CONFIG);
}
// Before what it follows is imported. Without it, nothing of it is loaded. The primary serves nothing that it would follow.
const telemetry =
  config.telemetry && (!isOneOfMany || isForked)
    ? await (await import('./telemetry/start.ts')).startTelemetry(config.telemetry, config.serviceName)
    : undefined;
const { createLogger } = await import('./observability/logger.ts');
const log = createLogger(config.logLevel);
if (isOneOfMany && !isForked) {
  // The primary serves nothing, and does not load what does.
  const { runPrimary } = await import('./process/primary.ts');
  await runPrimary(config, role, log.child({ pid: process.pid }));
} else {
  const { runGateway } = await import('./process/gateway.ts');
  await runGateway(config, role, isForked ? log.child({ pid: process.pid }) : log, { isForked, telemetry });
}
