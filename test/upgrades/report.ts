import { readFile, writeFile } from 'node:fs/promises';
import { withFigures } from '../../bench/report/docs.ts';
import { commitOfCheckout, lookAtMachine } from '../../bench/report/machine.ts';
import type { Upgraded } from './upgrade.ts';

const PAGE = new URL('../../docs/operations.md', import.meta.url);
const SHORT = 9;

/** One upgrade and what came of it. */
export interface Row {
  /** The commit of the version before. */
  readonly from: string;
  /** The commit of the version after; undefined for this one. */
  readonly to: string | undefined;
  /** Names of what was applied, in their order. */
  readonly migrations: readonly string[];
  /** What happened, or why it could not be run. */
  readonly outcome: Upgraded | string;
}

/** The tables with all that it takes to get them again: the command, when, where and what was run. */
export async function report(rows: readonly Row[], command: string, minutes: number): Promise<string> {
  const { cpu, cores, node, loadBefore } = lookAtMachine();
  const date = new Date().toISOString().slice(0, 10);
  return [
    `\`${command}\`, ${date}, at ${await commitOfCheckout()}: ${minutes.toFixed(0)} minutes on ${cores} cores of ${cpu} at ` +
      `a load of ${loadBefore.toFixed(1)}, Node.js ${node.slice(1)}, the former versions with the packages of this one.`,
    '',
    'From each version to the next one, by the next one’s own `npm run migrate`, and back:',
    '',
    ...table(rows.filter(({ to }) => to !== undefined)),
    '',
    'From each version to this one, by this one’s `npm run migrate`; back only from the newest migration:',
    '',
    ...table(rows.filter(({ to }) => to === undefined)),
  ].join('\n');
}

function table(rows: readonly Row[]): string[] {
  const line = (cells: readonly (string | number)[]): string => `| ${cells.join(' | ')} |`;
  return [
    line([
      'migrations',
      'from',
      'ms',
      'migrate failed',
      'under way',
      'longest, ms',
      'requests',
      'failed',
      'contradictions',
    ]),
    line(['---', '---', '---', '---', '---', '---', '---', '---', '---']),
    ...rows.map(({ migrations, from, outcome }) => {
      const [first = '', ...others] = migrations;
      const last = others.at(-1);
      const begin = [last ? `${numberOf(first)} to ${numberOf(last)}` : first, from.slice(0, SHORT)];
      if (typeof outcome === 'string') return line([...begin, `not run: ${outcome}`, '', '', '', '', '', '']);
      const { migrationMs, migrateFailed, during, longestDuring, requests, failed } = outcome;
      return line([
        ...[...begin, migrationMs, migrateFailed.join('; ') || 'no', during, longestDuring, requests],
        ...[counted(failed), contradictionsOf(outcome).length],
      ]);
    }),
  ];
}

const numberOf = (migration: string): string => migration.slice(0, 4);

/** What callers were told against the books, and rules of the audit that do not hold. */
export const contradictionsOf = ({ contradictions, audit }: Upgraded): readonly string[] =>
  audit.code === 0 ? contradictions : [...contradictions, audit.output];

/** The number of them, with what they said. */
function counted(failed: Upgraded['failed']): string {
  const sorts = Object.entries(failed);
  const all = sorts.reduce((sum, [, count]) => sum + count, 0);
  return all === 0 ? '0' : `${all}: ${sorts.map(([sort, count]) => `${count} ${sort}`).join('; ')}`;
}

/** Writes the tables into the page for operators, so that none of their numbers is typed by hand. */
export async function writeDocs(text: string): Promise<void> {
  await writeFile(PAGE, withFigures(await readFile(PAGE, 'utf8'), text));
}
