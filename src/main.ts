import cluster from 'node:cluster';
import { baseUrlWarning, describeFaults, readConfig } from './config/config.ts';
import { readRole } from './config/role.ts';
import { EXIT_CONFIG } from './lib/arguments.ts';
import { createLogger, lineOrigin } from './observability/logger.ts';

const role = readRole(process.argv.slice(2));
if (!role) {
  console.error("speechgate can't start: the only allowed argument is --role=web or --role=worker.");
  process.exit(EXIT_CONFIG);
}
const result = readConfig(process.env);
const isOneOfMany = result.outcome === 'read' && result.config.webConcurrency > 1 && role !== 'worker';
const isForked = isOneOfMany && cluster.isWorker;
if (!isForked) {
  for (const { name, meant } of result.misspelt)
    console.error(`Unknown setting ${name} is ignored. Did you mean ${meant}?`);
}
if (result.outcome === 'faulty') {
  console.error(`speechgate can't start:\n${describeFaults(result.faults)}`);
  process.exit(EXIT_CONFIG);
}

const { config } = result;
if (role === 'worker' && !config.speech) {
  console.error("speechgate can't start:\nno speech server is set, but a worker needs one. Set SPEECH_BASE_URL.");
  process.exit(EXIT_CONFIG);
}
const log = createLogger(config.logLevel).child(lineOrigin(config));
const warning = isForked ? undefined : baseUrlWarning(config);
if (warning) log.warn(warning);
if (isOneOfMany && !isForked) {
  // The primary serves nothing, so it does not load the gateway's modules.
  const { runPrimary } = await import('./primary.ts');
  await runPrimary(config, role, log.child({ pid: process.pid }));
} else {
  const { runGateway } = await import('./gateway.ts');
  await runGateway(config, role, isForked ? log.child({ pid: process.pid }) : log);
}
