import { type DiagLogger, DiagLogLevel, diag } from '@opentelemetry/api';
import {
  defaultResource,
  detectResources,
  envDetector,
  hostDetector,
  type Resource,
  resourceFromAttributes,
  serviceInstanceIdDetector,
} from '@opentelemetry/resources';
import type { Metrics } from '../observability/metrics.ts';
import type { TelemetryConfig } from '../settings/telemetry-settings.ts';

export interface Telemetry {
  /** Sends these metrics, from now on, where metrics are sent. */
  watch(metrics: Metrics): void;
  /** Tells what goes wrong, such as a collector that is away; the same fault once until something else goes wrong. */
  tellFaults(tell: (fault: string) => void): void;
  /** Sends what waits, as far as the exporters' own timeouts allow. */
  stop(): Promise<void>;
}

/**
 * Starts what OpenTelemetry's standard variables ask for. It has to be awaited before pg, pino or the server is imported.
 * @param serviceName where no variable names the service
 */
export async function startTelemetry({ traces, metrics }: TelemetryConfig, serviceName: string): Promise<Telemetry> {
  const resource = resourceOf(serviceName);
  const stopTracing = traces && (await (await import('./traces.ts')).startTraces(traces, resource));
  const sending = metrics && (await (await import('./metrics.ts')).startMetrics(metrics, resource));
  return {
    watch: (metrics) => sending?.watch(() => metrics.values()),
    tellFaults: (tell) =>
      diag.setLogger(faultsTo(tell), { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true }),
    stop: async () => {
      await Promise.allSettled([stopTracing?.(), sending?.stop()]);
    },
  };
}

/** What the standard variables say of the process, and what makes it another one than the next. */
const resourceOf = (serviceName: string): Resource =>
  defaultResource()
    .merge(resourceFromAttributes({ 'service.name': serviceName, 'process.pid': process.pid }))
    .merge(detectResources({ detectors: [hostDetector, serviceInstanceIdDetector, envDetector] }));

function faultsTo(tell: (fault: string) => void): DiagLogger {
  let last: string | undefined;
  const once = (fault: string) => {
    if (fault !== last) tell(fault);
    last = fault;
  };
  const ignore = () => {};
  return { error: once, warn: once, info: ignore, debug: ignore, verbose: ignore };
}
