import { readOptions } from './options.ts';
import { linesOf } from './report/comparison.ts';
import { plainTable, throughputCells } from './report/table.ts';
import { selectRows } from './rows.ts';
import { setUp } from './setup.ts';
import { measureThroughput } from './throughput.ts';

const options = readOptions(process.argv.slice(2));
const rows = selectRows(options.rows, options.processes);
const targets = new Set(rows.map(({ target }) => target));
if (targets.has('prebuilt')) targets.add('ours');
const startedAt = performance.now();

function progress(message: string): void {
  console.error(`${((performance.now() - startedAt) / 1000).toFixed(0).padStart(4)} s  ${message}`);
}

const setup = await setUp({ targets, processes: options.processes }, progress);
try {
  const rounds = await measureThroughput(setup, rows, options.pace, progress);
  progress('auditing the books');
  await setup.books.audit();
  console.log(plainTable(throughputCells(linesOf(rows, rounds))));
} finally {
  await setup.close();
}
