import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { t, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { askForFlowingAudio } from '../support/flowing-audio.ts';
import { send } from '../support/gateway.ts';
import { SHORT_LEASES, untilVictimIsSwept } from '../support/kill.ts';
import type { Kill } from '../support/kills.ts';
import { ask, isThere, startSeveral, untilGone } from '../support/several-processes.ts';
import { Drip, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const ANSWERED = 'speechgate_http_request_duration_seconds_count{operation="getHealth",status="200",end="answered"}';

// They mostly wait: for a lease, and between two lives of a process.
t.jobs = 2;

test('kill -9 of one process: the others go on, another one takes its place, and no count goes back', async (t) => {
  const several = await startSeveral(t);
  const { url, child } = several;
  await ask(url, 20);
  assert.equal(await several.metric(ANSWERED), 20);
  const [first = 0, second = 0] = several.pids();
  process.kill(first, 'SIGKILL');
  await untilGone(first);
  assert.deepEqual(new Set(await ask(url, 20)), new Set([200]), 'the other one goes on');
  assert.equal(await several.metric(ANSWERED), 40, 'what the dead one had told counts on');
  await until(async () => (await several.processes()) === '2 of 2 listen');
  await until(() => several.pids().length === 3);
  const third = several.pids()[2] ?? 0;
  assert.deepEqual(new Set(await ask(url, 20)), new Set([200]));
  assert.equal(await several.metric(ANSWERED), 60);
  const ends = several.logged('^a gateway process ended');
  assert.deepEqual(
    ends.map(({ ended, signal, pauseMs, level }) => [ended, signal, pauseMs, level]),
    [[first, 'SIGKILL', 0, 50]],
  );
  assert.equal(await child.stop(), 0);
  for (const pid of [second, third]) assert.ok(!isThere(pid));
});

test('processes that end one after the other are replaced with growing pauses', async (t) => {
  const several = await startSeveral(t);
  for (let listened = 2; listened < 6; listened++) {
    process.kill(several.pids().at(-1) ?? 0, 'SIGKILL');
    await until(() => several.pids().length > listened);
  }
  const pauses = several.logged('^a gateway process ended').map(({ pauseMs }) => pauseMs);
  assert.deepEqual(pauses, [0, 1_000, 2_000, 4_000]);
  process.kill(several.pids().at(-1) ?? 0, 'SIGKILL');
  await until(() => several.logged('^a gateway process ended').length === 5);
  const began = performance.now();
  assert.equal(await several.child.stop(), 0, 'a stop waits for no pause');
  assert.ok(performance.now() - began < 7_000);
});

test('kill -9 of a process between capture and last byte: another one gives back what it had charged', async (t) => {
  const several = await startSeveral(t, {
    ...SHORT_LEASES,
    NODE_ENV: 'test',
    SPEECHGATE_TEST_KILL_AT: 'whole speech captured' satisfies Kill,
  });
  const { url, gateway, child } = several;
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account };
  await assert.rejects(send(url, '/tts?text=Hello+world', { headers }));
  assert.equal(await gateway.balance(account), 4_999_802n);
  await until(async () => (await several.processes()) === '2 of 2 listen');
  await untilVictimIsSwept(gateway.db);
  assert.equal(await gateway.balance(account), 5_000_000n);
  assert.deepEqual(await audit(gateway.db), []);
  assert.equal(await child.stop(), 0);
});

test('kill -9 of the primary: what runs is finished, nothing new is accepted, and no process is left', async (t) => {
  const several = await startSeveral(t);
  const { url, gateway, child, upstream } = several;
  const account = await gateway.fund(500);
  const drip = new Drip();
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
  assert.deepEqual(await db.selectFrom('gateway_process').select('id').execute(), [], 'they have signed off');
  assert.equal(await gateway.balance(account), 4_999_802n);
  assert.deepEqual(await audit(db), []);
});
