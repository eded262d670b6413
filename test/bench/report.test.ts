import assert from 'node:assert/strict';
import { test } from 'tap';
import { markdownTable, plainTable } from '../../bench/report/cells.ts';
import { linesOf } from '../../bench/report/comparison.ts';
import { withFigures } from '../../bench/report/docs.ts';
import { plot } from '../../bench/report/plot.ts';
import { tablesOf } from '../../bench/report/tables.ts';
import { selectRows } from '../../bench/rows.ts';
import { quantile, spread } from '../../bench/statistics.ts';

const round = (requestsPerSecond: number, cpuMs: number) => ({
  ...{ requestsPerSecond, cpuMs, p50Ms: 1, p99Ms: 2, postgresCpuMs: 0.5, memory: 1024 ** 2, loadCpuMs: 0.01 },
  eventLoopP99Ms: 3,
});

const lines = linesOf(selectRows(['card'], [1]), {
  portkey: [round(1000, 1), round(100, 1), round(1000, 1)],
  card: [round(2100, 0.3), round(210, 0.4), round(500, 0.36)],
});

const results = {
  ...{ isComplete: true, minutes: 1, rounds: 3, throughput: lines },
  machine: {
    ...{ startedAt: '2026-01-01T00:00:00', commit: 'abc', cpu: 'a <chip>', cores: 2, memoryGiB: 4, system: 'linux' },
    ...{ node: 'v20.20.0', postgres: '18', loadBefore: 0 },
  },
};

test('picked rows bring those along that they are held against, and come once for each number of processes', async () => {
  assert.deepEqual(
    selectRows(['card'], [1, 2]).map(({ name }) => name),
    ['portkey', 'card', 'card-2'],
  );
});

test('a ratio is the median of what each round came to, so that a slow round does not count as a slow gateway', async () => {
  const [, card] = lines;
  assert.deepEqual(card?.ratios, [{ against: 'Portkey 1.15.2', rate: 2.1, cpu: 0.36, askedRate: 2, askedCpu: 0.35 }]);
  assert.deepEqual(card?.requestsPerSecond, { median: 500, min: 210, max: 2100 });
});

test('the tables tell what is reached and what is missed', async () => {
  const [measured, ratios] = tablesOf(results);
  assert.ok(measured && ratios);
  assert.deepEqual(ratios.cells.at(-1), [
    ...['card', 'Portkey 1.15.2', '2.10x', '2x', 'reached', '0.36x', '0.35x', 'missed'],
  ]);
  assert.match(plainTable(measured), /^card +500 \(210–2,100\)/m);
  assert.match(markdownTable(measured), /^\| card \| 500 \(210–2,100\) \|/m);
});

test('what the CPU allows is bounded by the process, and by the machine that it shares', async () => {
  const capacityOf = (cores: number) =>
    tablesOf({ ...results, machine: { ...results.machine, cores } })[2]?.cells.at(-1);
  assert.deepEqual(capacityOf(4), ['card', '2,778', '2,000', '2,778', '500', '0.18x']);
  assert.deepEqual(capacityOf(1), ['card', '2,778', '2,000', '1,149', '500', '0.43x']);
});

test('the plot has a bar for each figure', async () => {
  const svg = plot(lines);
  // The ground, two bars of each row, and one of PostgreSQL.
  assert.equal(svg.match(/<rect /g)?.length, 1 + 2 * 2 + 1);
  assert.doesNotMatch(svg, /NaN|Infinity|undefined/);
});

test('figures replace those between the marks, and nothing else', async () => {
  const page = 'before\n<!-- measured: begin -->\n\nold\n<!-- measured: end -->\nafter\n';
  const once = withFigures(page, 'new');
  assert.equal(once, 'before\n<!-- measured: begin -->\n\nnew\n<!-- measured: end -->\nafter\n');
  assert.equal(withFigures(once, 'new'), once);
  assert.throws(() => withFigures('no marks', 'new'));
});

test('medians and quantiles', async () => {
  assert.deepEqual(spread([3, 1, 2]), { median: 2, min: 1, max: 3 });
  assert.equal(spread([4, 1, 2, 3]).median, 2.5);
  const hundred = Float64Array.from({ length: 100 }, (_, index) => index + 1);
  assert.deepEqual([quantile(hundred, 0.5), quantile(hundred, 0.99), quantile(hundred, 1)], [50, 99, 100]);
  assert.equal(quantile(Float64Array.of(7), 0.5), 7);
});
