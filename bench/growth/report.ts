import { spread } from '../statistics.ts';
import type { BytesPerRequest, TableSize } from './bytes.ts';
import type { Rates } from './rates.ts';
import type { Timed } from './upkeep.ts';

/** What a run has found. */
export interface GrowthResults {
  readonly accounts: number;
  readonly transfers: number;
  readonly payments: number;
  readonly fillSeconds: number;
  readonly databaseBytes: number;
  readonly tables: readonly TableSize[];
  readonly bytes: readonly BytesPerRequest[];
  /** By the ledger's own statements. */
  readonly ledgerRates: readonly Rates[];
  readonly requestRates: readonly Rates[];
  readonly reconcilers: readonly Timed[];
  readonly pruning: readonly Timed[];
  readonly audit: readonly Timed[];
}

/** As tables in Markdown, which a terminal shows well enough. */
export function reportOf(results: GrowthResults): string {
  const { accounts, transfers, payments, fillSeconds, databaseBytes, tables, bytes } = results;
  const auditSeconds = results.audit.reduce((sum, { seconds }) => sum + seconds, 0);
  return [
    `${count(accounts)} accounts, ${count(transfers)} transfers, ${count(payments)} payments: ` +
      `${megabytes(databaseBytes)} MB, filled in ${Math.round(fillSeconds)} s, audited in ${Math.round(auditSeconds)} s`,
    table(
      ['table', 'rows', 'MB', 'MB of indexes'],
      tables.map((size) => [size.table, count(size.rows), megabytes(size.tableBytes), megabytes(size.indexBytes)]),
    ),
    table(
      ['a paid request', 'bytes in tables and indexes', 'bytes in the log'],
      bytes.map(({ flow, total, log }) => [flow, count(total), count(log)]),
    ),
    ratesTable('requests/s by the statements alone', results.ledgerRates),
    ratesTable('requests/s over HTTP', results.requestRates),
    table(['reconciler', 'ms', 'done'], results.reconcilers.map(timedCells)),
    table(
      ['pruning', 'rows', 'rows/s'],
      results.pruning.map(({ what, seconds, count: rows = 0 }) => [what, count(rows), count(rows / seconds)]),
    ),
  ].join('\n\n');
}

function ratesTable(title: string, rates: readonly Rates[]): string {
  const [first = '', ...others] = Object.keys(rates[0]?.perSecond ?? {});
  return table(
    [title, first, ...others, ...others.map((name) => `${name} / ${first}`)],
    rates.map(({ flow, perSecond }) => [
      flow,
      ...[first, ...others].map((name) => rate(perSecond, name)),
      ...others.map((name) => ratio(perSecond, name, first)),
    ]),
  );
}

const timedCells = ({ what, seconds, count: done = 0 }: Timed) => [what, (seconds * 1000).toFixed(1), count(done)];

function rate(perSecond: Rates['perSecond'], name: string): string {
  const { median, min, max } = spread(perSecond[name] ?? []);
  return `${count(median)} (${count(min)} to ${count(max)})`;
}

/** The median of the rounds' ratios: what else the machine does meets both of a round alike. */
function ratio(perSecond: Rates['perSecond'], name: string, against: string): string {
  const ratios = (perSecond[name] ?? []).map((value, round) => value / (perSecond[against]?.[round] as number));
  const { median, min, max } = spread(ratios);
  return `${median.toFixed(2)} (${min.toFixed(2)} to ${max.toFixed(2)})`;
}

const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');

const count = (value: number): string => Math.round(value).toLocaleString('en');
const megabytes = (bytes: number): string => count(bytes / 1_000_000);
