import { readOptions } from './options.ts';
import { plainTable } from './report/cells.ts';
import { writeDocs } from './report/docs.ts';
import { loadResults, saveResults } from './report/results.ts';
import { tablesOf } from './report/tables.ts';
import { run } from './run.ts';

const startedAt = performance.now();

function progress(message: string): void {
  const seconds = Math.round((performance.now() - startedAt) / 1000);
  console.error(`${String(seconds).padStart(4)} s  ${message}`);
}

try {
  const options = readOptions(process.argv.slice(2));
  const results = options.from === undefined ? await run(options, progress) : await loadResults(options.from);
  for (const table of tablesOf(results)) console.log(plainTable(table));
  if (options.from === undefined) console.log(`All figures are in ${await saveResults(results)}.`);
  if (options.writeDocs) await writeDocs(results);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
