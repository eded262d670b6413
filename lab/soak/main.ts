/**
 * `npm run lab -- soak`, see lab/soak/README.md. Exit code: 0 when all counts are zero, 1 when not, 2 when it could not run.
 */
import { randomBytes } from 'node:crypto';
import { parseArgs } from 'node:util';
import { breakWorld, TARGETS } from './faults.ts';
import { report, runCallers, runProgram } from './run.ts';
import { openWorld } from './world/open-world.ts';

await runProgram(async (owner) => {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: randomBytes(4).toString('hex') },
      minutes: { type: 'string', default: '10' },
      callers: { type: 'string', default: '40' },
      target: { type: 'string' },
      'without-faults': { type: 'boolean', default: false },
    },
  });
  const { seed, target } = values;
  if (target !== undefined && !TARGETS.includes(target))
    throw new Error(`No fault of ${target}: ${TARGETS.join(', ')}.`);
  const [minutes, callers] = [amount(values.minutes), amount(values.callers)];
  const parts = `${target === undefined ? '' : ` --target '${target}'`}${values['without-faults'] ? ' --without-faults' : ''}`;
  const command = `npm run lab -- soak --seed ${seed} --minutes ${minutes} --callers ${callers}${parts}`;
  console.log(command);

  const world = await openWorld(owner);
  const isTarget = values['without-faults'] ? () => false : (name: string) => name === (target ?? name);
  const run = await runCallers(owner, world, {
    ...{ seed, callers, breakParts: (now) => breakWorld(world, { seed, minutes, isTarget, now }) },
  });
  const code = report(run);
  if (code !== 0) console.log(`\n${command}`);
  return code;
});

function amount(text: string): number {
  const number = Number(text);
  if (text === '' || !(number >= 0)) throw new Error(`${text} is no number of 0 or more.`);
  return number;
}
