/** `npm run lab -- attacks`, see README.md. */
import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import { t as root, test } from 'tap';
import { testChain } from '../../test/support/chain.ts';
import { commitOfCheckout, markdownTable, processors, progress, writeFigures } from '../figures.ts';
import { installPeers } from '../install-peers.ts';
import { ATTACKS } from './attacks.ts';
import { COUNTS, type Outcome, runLanes } from './run.ts';
import { packageOf, TARGETS, type TargetName } from './targets.ts';
import { openWorld } from './world.ts';

const LONGEST_MS = 24 * 3_600_000;

const { values } = parseArgs({
  options: {
    tries: { type: 'string', default: '100' },
    /** Names of attacks or prefixes of names, separated by commas. */
    only: { type: 'string' },
    against: { type: 'string', default: TARGETS.join(',') },
    write: { type: 'boolean', default: false },
  },
});
const tries = Number(values.tries);
const prefixes = values.only?.split(',') ?? [''];
const attacks = ATTACKS.filter(({ name }) => prefixes.some((prefix) => name.startsWith(prefix)));
const targets = values.against.split(',') as TargetName[];
assert.match(values.tries, /^[1-9]\d{0,4}$/, 'That is no number of tries.');
assert.ok(attacks.length > 0, 'No attack has a name that begins so.');
for (const name of targets) assert.ok(TARGETS.includes(name), `There is no ${name}. There are: ${TARGETS.join(', ')}.`);
assert.ok(
  !values.write || (values.only === undefined && targets.length === TARGETS.length),
  'Only a run of all attacks against all targets goes into the docs.',
);
const command = ['npm run lab -- attacks', ...process.argv.slice(2)].join(' ');
root.setTimeout(LONGEST_MS);
const { chain, skip } = await testChain();

test(command, { skip, timeout: LONGEST_MS }, async (t) => {
  const commit = commitOfCheckout();
  if (targets.some((target) => target !== 'ours')) await installPeers('lab/attacks/peers');
  const outcomes: Outcome[] = [];
  const add = (outcome: Outcome): void => {
    outcomes.push(outcome);
    const wrong = Object.entries(outcome.counts).filter(([, count]) => count > 0);
    const told = wrong.map(([count, number]) => `${number} ${count}`).join(', ') || 'nothing';
    progress(`${outcome.target}: ${outcome.attack}: ${told}`);
    if (outcome.example !== undefined) console.error(`    ${outcome.example}`);
  };
  const world = await openWorld(t, chain);
  for (const target of targets) await runLanes(world, target, attacks, tries, add);

  const names = await Promise.all(targets.map(packageOf));
  const today = new Date().toISOString().slice(0, 10);
  const sumsOf = (target: TargetName, attack?: string): number[] | undefined => {
    const of = outcomes.filter((each) => each.target === target && (attack === undefined || each.attack === attack));
    if (of.length > 0) return COUNTS.map((count) => of.reduce((sum, { counts }) => sum + counts[count], 0));
  };
  const cell = (target: TargetName, attack?: string) => sumsOf(target, attack)?.join(' · ') ?? 'not judged';
  const text = [
    `\`${command}\`, ${today}, at ${commit}: ${attacks.length} attacks, ${tries} tries of each against each, on ` +
      `${processors()}, Node.js ${process.version.slice(1)}. ` +
      `${outcomes.reduce((sum, each) => sum + each.repetitions, 0)} times tries were made again, since the machine had ` +
      `slowed the facilitator down. A cell counts tries: ${COUNTS.join(' · ')}.\n`,
    markdownTable([
      ['attack or fault', ...names],
      ...attacks.map(({ name }) => [name, ...targets.map((target) => cell(target, name))]),
      ['**all**', ...targets.map((target) => `**${cell(target)}**`)],
    ]),
  ].join('\n');
  console.log(text);
  const wrong = outcomes.filter(({ target, counts }) => target === 'ours' && Object.values(counts).some(Boolean));
  assert.deepEqual(
    wrong.map(({ attack }) => attack),
    [],
    'attacks in which ours is not 0',
  );
  const missing = attacks.length * targets.length - outcomes.length;
  assert.equal(missing, 0, 'attacks that were not judged, since this machine was too busy');
  if (!values.write) return;
  await writeFigures('lab/attacks/README.md', text);
  const sums = targets.map((target, at) => [
    names[at] ?? '',
    ...(sumsOf(target) ?? []).map((sum) => sum.toLocaleString('en')),
  ]);
  const summary = `${attacks.length} attacks, ${tries} tries of each, ${today}, at ${commit}:\n`;
  await writeFigures('docs/security.md', [summary, markdownTable([['server', ...COUNTS], ...sums])].join('\n'));
});
