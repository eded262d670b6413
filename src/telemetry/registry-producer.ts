import { type HrTime, ValueType } from '@opentelemetry/api';
import { hrTime, millisToHrTime } from '@opentelemetry/core';
import { emptyResource } from '@opentelemetry/resources';
import {
  AggregationTemporality,
  DataPointType,
  type MetricData,
  type MetricProducer,
} from '@opentelemetry/sdk-metrics';
import type { MetricValues } from '../observability/metrics.ts';

type Metric = MetricValues[number];
/** prom-client leaves out that a histogram's values have names, and that labels are few. */
interface Value {
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly metricName?: string;
}

const SCOPE = { name: 'speechgate' };

/** Gives what `/metrics` shows to OpenTelemetry: the same names, labels and values, counted since the process began. */
export class RegistryProducer implements MetricProducer {
  readonly #startTime = millisToHrTime(performance.timeOrigin);
  #read: (() => Promise<MetricValues>) | undefined;

  /** From now on there is something to tell. */
  watch(read: () => Promise<MetricValues>): void {
    this.#read = read;
  }

  async collect(): ReturnType<MetricProducer['collect']> {
    const values = (await this.#read?.()) ?? [];
    const span = { startTime: this.#startTime, endTime: hrTime() };
    const metrics = values.flatMap((metric) => metricData(metric, span) ?? []);
    return { resourceMetrics: { resource: emptyResource(), scopeMetrics: [{ scope: SCOPE, metrics }] }, errors: [] };
  }
}

interface Times {
  readonly startTime: HrTime;
  readonly endTime: HrTime;
}

function metricData(metric: Metric, times: Times): MetricData | undefined {
  const values = metric.values as readonly Value[];
  const described = {
    descriptor: { name: metric.name, description: metric.help, unit: '', valueType: ValueType.DOUBLE },
    aggregationTemporality: AggregationTemporality.CUMULATIVE,
  };
  const points = values
    .filter(({ value }) => Number.isFinite(value))
    .map(({ value, labels }) => ({ ...times, attributes: labels, value }));
  switch (`${metric.type}`) {
    case 'counter':
      return { ...described, dataPointType: DataPointType.SUM, isMonotonic: true, dataPoints: points };
    case 'gauge':
      return { ...described, dataPointType: DataPointType.GAUGE, dataPoints: points };
    case 'histogram':
      return {
        ...described,
        dataPointType: DataPointType.HISTOGRAM,
        dataPoints: series(values).map((of) => ({ ...times, ...histogram(metric.name, of) })),
      };
    default:
      return undefined;
  }
}

/** The values of a histogram by their labels but `le`. */
function series(values: readonly Value[]): Value[][] {
  const byLabels = new Map<string, Value[]>();
  for (const value of values) {
    const { le: _, ...labels } = value.labels;
    const key = JSON.stringify(labels);
    byLabels.set(key, [...(byLabels.get(key) ?? []), value]);
  }
  return [...byLabels.values()];
}

/** Prometheus' buckets count what is below them, OpenTelemetry's what is between. */
function histogram(name: string, values: readonly Value[]) {
  const of = (suffix: string) => values.find(({ metricName }) => metricName === `${name}_${suffix}`)?.value ?? 0;
  const buckets = values.filter(({ labels }) => labels.le !== undefined && labels.le !== '+Inf');
  const below = buckets.map(({ value }) => value);
  const { le: _, ...attributes } = values[0]?.labels ?? {};
  const count = of('count');
  return {
    attributes,
    value: {
      buckets: {
        boundaries: buckets.map(({ labels }) => Number(labels.le)),
        counts: [...below, count].map((upTo, at, all) => upTo - (all[at - 1] ?? 0)),
      },
      count,
      sum: of('sum'),
    },
  };
}
