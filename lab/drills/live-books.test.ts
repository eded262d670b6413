/**
 * While callers pay by every flow, `report` and `audit --external` find nothing wrong. LIVE_SECONDS says for how long, 60
 * where it is not set.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { runCallers } from '../../lab/soak/run.ts';
import { startOneGateway } from '../../lab/soak/world/one-gateway.ts';
import { operatorCommand } from '../../test/support/operator-command.ts';

const SECONDS = Number(process.env.LIVE_SECONDS ?? 60);
const PAUSE_MS = 3_000;
/** One of each kind; they pay as fast as they can. */
const CALLERS = 7;
/** A line of `report`. */
const DIFFERENCE = /^ {2}\S+ {2}(transfer|payment|purchase|refund|dispute) \S+: (.*)$/gm;

test('report and audit --external hold while callers pay by every flow', async (t) => {
  const { service } = await startOneGateway(t, { RECONCILE_INTERVAL_MS: '15000' });
  const counts = new Map<string, number>();
  const count = (what: string) => void counts.set(what, (counts.get(what) ?? 0) + 1);
  const check = async (end: number, ...words: [string, ...string[]]) => {
    for (; Date.now() < end; await sleep(PAUSE_MS)) {
      const { code, output } = await operatorCommand(service.env, ...words);
      count(`${words[0]} ended with ${code}`);
      for (const [, what, reason] of output.matchAll(DIFFERENCE)) count(`${what}: ${reason?.replace(/\d.*/, '…')}`);
      t.equal(code, 0, `${words.join(' ')} finds nothing wrong`, { output });
    }
  };
  const from = new Date().toISOString().slice(0, 10);
  const breakParts = async () => {
    const end = Date.now() + SECONDS * 1000;
    await Promise.all([check(end, 'report', '--from', from), check(end, 'audit', '--external')]);
    return [];
  };
  const { verdict } = await runCallers(t, service, { seed: service.databaseUrl, callers: CALLERS, breakParts });
  for (const [what, times] of [...counts].sort()) console.error(`${times} ${what}`);
  t.strictSame(verdict.contradictions, []);
});
