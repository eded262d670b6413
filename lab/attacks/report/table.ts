import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { lookAtMachine } from '../../bench/report/machine.ts';
import { PROJECT } from '../../bench/targets/program.ts';
import type { Attack } from '../attack.ts';
import { COUNTS } from '../judge.ts';
import type { TargetName } from '../lanes.ts';
import type { Options } from '../options.ts';
import type { Outcome } from '../run.ts';

export interface Run {
  readonly attacks: readonly Attack[];
  readonly outcomes: readonly Outcome[];
  readonly options: Options;
  readonly commit: string;
}

const PACKAGES: Readonly<Record<Exclude<TargetName, 'ours'>, string>> = {
  express: '@x402/express',
  hono: '@x402/hono',
  mppx: 'mppx',
};

/** The table, with the command, date, machine and versions that reproduce it. */
export async function report({ attacks, outcomes, options, commit }: Run): Promise<string> {
  const { targets, tries, command } = options;
  const { cpu, cores, node } = lookAtMachine();
  const names = await Promise.all(targets.map(nameOf));
  const cell = (target: string, attack: string): string => {
    const outcome = outcomes.find((each) => each.target === target && each.attack === attack);
    return outcome ? COUNTS.map((count) => outcome.counts[count]).join(' · ') : 'not judged';
  };
  const repetitions = outcomes.reduce((sum, each) => sum + each.repetitions, 0);
  return [
    `\`${command}\`, ${today()}, at ${commit}: ${attacks.length} attacks, ${tries} tries of each against each, on ${cores} ` +
      `cores of ${cpu}, Node.js ${node.slice(1)}. ${repetitions} times tries were made again, since the machine had ` +
      `slowed the facilitator down. A cell counts tries: ${COUNTS.join(' · ')}.`,
    '',
    row(['attack or fault', ...names]),
    row(['---', ...names.map(() => '---')]),
    ...attacks.map(({ name }) => row([name, ...targets.map((target) => cell(target, name))])),
    row(['**all**', ...targets.map((target) => `**${sumsOf(target, outcomes).join(' · ')}**`)]),
  ].join('\n');
}

export async function summary({ attacks, outcomes, options, commit }: Run): Promise<string> {
  const rows = options.targets.map(async (target) =>
    row([await nameOf(target), ...sumsOf(target, outcomes).map((sum) => sum.toLocaleString('en'))]),
  );
  return [
    `${attacks.length} attacks, ${options.tries} tries of each, ${today()}, at ${commit}:`,
    '',
    row(['server', ...COUNTS]),
    row(['---', ...COUNTS.map(() => '---')]),
    ...(await Promise.all(rows)),
  ].join('\n');
}

const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;

const today = (): string => new Date().toISOString().slice(0, 10);

const sumsOf = (target: string, outcomes: readonly Outcome[]): number[] =>
  COUNTS.map((count) =>
    outcomes.filter((each) => each.target === target).reduce((sum, { counts }) => sum + counts[count], 0),
  );

async function nameOf(target: TargetName): Promise<string> {
  const folder = target === 'ours' ? '.' : join('lab/attacks/peers/node_modules', PACKAGES[target]);
  const { name, version } = JSON.parse(await readFile(join(PROJECT, folder, 'package.json'), 'utf8'));
  return `${name} ${version}`;
}
