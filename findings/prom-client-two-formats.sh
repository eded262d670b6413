#!/usr/bin/env bash
# prom-client 15.1.3: one registry can't serve Prometheus' text format and OpenMetrics by turns, nor can a cluster.
#
# Writing OpenMetrics takes `_total` from the name that the registry keeps for a counter, so each later text scrape has the
# counter under another name: a series ends and its alerts fall silent. Metrics that are aggregated from several processes
# and written as OpenMetrics have `_total` twice and lose their exemplars.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund prom-client@15.1.3
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { AggregatorRegistry, Counter, Histogram, Registry } from 'prom-client';

const registry = new Registry();
new Counter({ name: 'paid_total', help: 'Paid requests.', registers: [registry] }).inc();
const samples = async (of) => (await of.metrics()).split('\n').filter((line) => /^paid/.test(line));
const before = await samples(registry);
registry.setContentType(Registry.OPENMETRICS_CONTENT_TYPE);
const open = await samples(registry);
registry.setContentType(Registry.PROMETHEUS_CONTENT_TYPE);
const after = await samples(registry);
console.log({ before, open, after });
assert.deepEqual([before, open, after], [['paid_total 1'], ['paid_total 1'], ['paid 1']]);

const worker = new Registry(Registry.OPENMETRICS_CONTENT_TYPE);
new Counter({ name: 'paid_total', help: 'Paid requests.', registers: [worker] }).inc();
const seconds = new Histogram({
  ...{ name: 'spent_seconds', help: 'Time spent.', buckets: [1] },
  ...{ enableExemplars: true, registers: [worker] },
});
seconds.observe({ value: 0.5, exemplarLabels: { trace_id: 'b18bb88a' } });
const ofWorkers = AggregatorRegistry.aggregate([await worker.getMetricsAsJSON()], Registry.OPENMETRICS_CONTENT_TYPE);
const alone = await worker.metrics();
const together = await ofWorkers.metrics();
console.log(await samples(ofWorkers), { exemplar: [alone.includes('b18bb88a'), together.includes('b18bb88a')] });
assert.deepEqual(await samples(ofWorkers), ['paid_total_total 1']);
assert.deepEqual([alone.includes('b18bb88a'), together.includes('b18bb88a')], [true, false]);
JS
node run.mjs
