import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { startChild } from '../support/child.ts';
import { send } from '../support/gateway.ts';
import { isThere, type SeveralProcesses, severalSettings, startSeveral } from '../support/several-processes.ts';
import { ControlledStream, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

/** Requests for speech that run in both processes, each until its audio ends. */
async function runInBoth({ url, gateway, upstream }: SeveralProcesses) {
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account, connection: 'close' };
  const drips = [new ControlledStream(), new ControlledStream(), new ControlledStream(), new ControlledStream()];
  const waiting = [...drips];
  upstream.mode = (request, response) => waiting.shift()?.mode(request, response);
  const running = drips.map(() => send(url, '/tts?text=Hello+world', { headers }));
  await Promise.all(drips.map((drip) => drip.opened));
  const finish = () => {
    for (const drip of drips) {
      drip.write(silentMp3(500));
      drip.end();
    }
  };
  return { account, running, finish };
}

/** Waits until no connection is accepted. */
const untilRefused = (port: number): Promise<void> =>
  until(async () => {
    const socket = connect(port, '127.0.0.1');
    const refused = await once(socket, 'connect').then(
      () => false,
      ({ code }) => code === 'ECONNREFUSED',
    );
    socket.destroy();
    return refused;
  });

for (const signal of ['SIGTERM', 'SIGINT'] as const) {
  test(`${signal} lets both processes finish their audio and exits 0 without holds`, async (t) => {
    const several = await startSeveral(t);
    const { account, running, finish } = await runInBoth(several);
    const stopped = several.child.stop(signal);
    // Ctrl-C in a terminal reaches each process.
    if (signal === 'SIGINT') for (const pid of several.pids()) process.kill(pid, signal);
    await untilRefused(several.port);
    finish();
    const replies = await Promise.all(running);
    assert.deepEqual(
      replies.map(({ status }) => status),
      [200, 200, 200, 200],
    );
    assert.equal(await stopped, 0);
    for (const pid of several.pids()) assert.ok(!isThere(pid), 'the primary ends last');
    const servers = new Set(several.logged('^request$').flatMap(({ flow, pid }) => (flow === 'card' ? [pid] : [])));
    assert.equal(servers.size, 2, 'both spoke');
    assert.equal(several.logged('^a gateway process exited').length, 0, 'none was replaced');
    const { db, balance } = several.gateway;
    assert.deepEqual(await db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute(), []);
    assert.equal(await balance(account), 5_000_000n - 4n * 198n);
    assert.deepEqual(await audit(db), []);
  });
}

test('SIGTERM during the start of the processes exits 0', async (t) => {
  const { env } = await severalSettings(t);
  const child = startChild(t, 'src/main.ts', env);
  await child.printed(/Server listening at/);
  assert.equal(await child.stop(), 0);
  assert.doesNotMatch(child.output(), /listens on/);
});
