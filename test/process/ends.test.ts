import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { t, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { askForFlowingAudio } from '../support/flowing-audio.ts';
import { send } from '../support/gateway.ts';
import { sweepVictim } from '../support/kill.ts';
import type { Kill } from '../support/kills.ts';
import { ask, isThere, startSeveral, untilGone } from '../support/several-processes.ts';
import { ControlledStream, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

// They mostly wait: for a lease, and between two lives of a process.
t.jobs = 2;

test('after kill -9 of one process the others continue and it is replaced', async (t) => {
  const several = await startSeveral(t);
  const { url, child } = several;
  await ask(url, 20);
  const [first = 0, second = 0] = several.pids();
  process.kill(first, 'SIGKILL');
  await untilGone(first);
  assert.deepEqual(new Set(await ask(url, 20)), new Set([200]), 'the other one goes on');
  await until(async () => (await several.processes()) === '2 of 2 listen');
  await until(() => several.pids().length === 3);
  const third = several.pids()[2] ?? 0;
  assert.deepEqual(new Set(await ask(url, 20)), new Set([200]));
  const ends = several.logged('^a gateway process exited');
  assert.deepEqual(
    ends.map(({ ended, signal, level }) => [ended, signal, level]),
    [[first, 'SIGKILL', 50]],
  );
  assert.equal(await child.stop(), 0);
  for (const pid of [second, third]) assert.ok(!isThere(pid));
});

test('after kill -9 of a process its hold is voided when the lease expires', async (t) => {
  const several = await startSeveral(t, { NODE_ENV: 'test', SPEECHGATE_TEST_KILL_AT: 'speech held' satisfies Kill });
  const { url, gateway, child } = several;
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account };
  await assert.rejects(send(url, '/tts?text=Hello+world', { headers }));
  assert.equal(await gateway.balance(account), 4_999_802n);
  await until(async () => (await several.processes()) === '2 of 2 listen');
  await sweepVictim(gateway);
  assert.equal(await gateway.balance(account), 5_000_000n);
  assert.deepEqual(await audit(gateway.db), []);
  assert.equal(await child.stop(), 0);
});

test('after kill -9 of the primary, running requests finish and every process exits', async (t) => {
  const several = await startSeveral(t);
  const { url, gateway, child, upstream } = several;
  const account = await gateway.fund(500);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const answer = await askForFlowingAudio(url, account, drip);
  await child.stop('SIGKILL');
  await assert.rejects(send(url, '/'), /ECONNREFUSED/);
  await sleep(1_000);
  drip.write(silentMp3(500));
  drip.end();
  const pieces: Buffer[] = [];
  for await (const piece of answer) pieces.push(piece);
  assert.deepEqual(Buffer.concat(pieces), Buffer.concat([silentMp3(500), silentMp3(500)]));
  for (const pid of several.pids()) await untilGone(pid);
  const { db } = gateway;
  assert.deepEqual(await db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute(), []);
  assert.equal(await gateway.balance(account), 4_999_802n);
  assert.deepEqual(await audit(db), []);
});
