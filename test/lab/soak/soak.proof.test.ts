import assert from 'node:assert/strict';
import { t as root, test } from 'tap';
import { KINDS } from '../../../lab/soak/judge/rule.ts';
import { testChain } from '../../support/chain.ts';
import { startCommand } from '../../support/child.ts';

/** So that a change is looked at by a run of its own length beforehand. */
const MINUTES = process.env.SOAK_MINUTES ?? '2';
const SEED = process.env.SOAK_SEED ?? 'proof';
const EXTRA_MS = 600_000;
const TIMEOUT_MS = Number(MINUTES) * 60_000 + EXTRA_MS;

// The runner's own patience is shorter.
root.setTimeout(TIMEOUT_MS);

/** The first line after the progress. */
const SUMMARY = /^\d+ operations, /m;
const CONTRADICTION = new RegExp(`^(${KINDS.join('|').toUpperCase()}): `, 'm');

const { skip } = await testChain();

test(`npm run soak -- --seed ${SEED} --minutes ${MINUTES}: no contradiction is found`, {
  ...{ skip, timeout: TIMEOUT_MS },
}, async (t) => {
  const soak = startCommand(
    t,
    [...[process.execPath, '--import', 'tsx', 'lab/soak/main.ts'], ...['--seed', SEED, '--minutes', MINUTES]],
    {},
  );
  const code = await soak.ended();
  const printed = soak.output();
  t.comment(contradictionsIn(printed) || printed.slice(printed.search(SUMMARY)));
  assert.equal(code, 0, printed);
});

/** The last thing that is printed, which is to be read first. */
function contradictionsIn(printed: string): string {
  const at = printed.search(CONTRADICTION);
  return at === -1 ? '' : printed.slice(at);
}
