import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { sql } from 'kysely';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { startChild, startScript } from '../support/child.ts';
import { askForFlowingAudio } from '../support/flowing-audio.ts';
import { type Gateway, send } from '../support/gateway.ts';
import { holdOnCard } from '../support/holds.ts';
import { later, untilJob } from '../support/jobs.ts';
import { sweepVictim } from '../support/kill.ts';
import { projectFile } from '../support/project.ts';
import {
  ask,
  isThere,
  type SeveralProcesses,
  severalSettings,
  startSeveral,
  untilGone,
} from '../support/several-processes.ts';
import { ControlledStream, silentMp3 } from '../support/stub-upstream.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const PRICE = 198n;
const FUNDED = 5_000_000n;

const answered = (operation: string): string =>
  `speechgate_http_request_duration_seconds_count{operation="${operation}",status="200",end="answered"}`;

/** Requests for speech that run in both processes, each until `finish` is called. */
async function runInBoth({ url, gateway, upstream }: SeveralProcesses) {
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account, connection: 'close' };
  const drips = [new ControlledStream(), new ControlledStream(), new ControlledStream(), new ControlledStream()];
  const waiting = [...drips];
  const working = upstream.mode;
  upstream.mode = (request, response) => waiting.shift()?.mode(request, response);
  const running = Promise.allSettled(drips.map(() => send(url, '/tts?text=Hello+world', { headers })));
  await Promise.all(drips.map((drip) => drip.opened));
  upstream.mode = working;
  const finish = async () => {
    for (const drip of drips) {
      drip.write(silentMp3(500)).catch(() => {});
      drip.end();
    }
    return (await running).map((reply) => (reply.status === 'fulfilled' ? reply.value.status : 'lost'));
  };
  return { account, finish };
}

const pendingOf = ({ db }: Gateway) => db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute();

/** The processes that have logged requests for speech since there were so many lines. */
const spokenBy = (several: SeveralProcesses, since = 0) =>
  new Set(
    several
      .logged('^request$')
      .slice(since)
      .flatMap(({ flow, pid }) => (flow === 'card' ? [pid] : [])),
  );

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

/** Stops the processes while both of them speak: all audio is finished and paid, and all processes end. */
async function assertStops(several: SeveralProcesses, signal: NodeJS.Signals): Promise<void> {
  const { child, gateway, port } = several;
  const exits = several.logged('^a gateway process ended').length;
  const since = several.logged('^request$').length;
  const { account, finish } = await runInBoth(several);
  const stopped = child.stop(signal);
  // Ctrl-C in a terminal reaches each process.
  if (signal === 'SIGINT') for (const pid of several.pids().filter(isThere)) process.kill(pid, signal);
  await untilRefused(port);
  assert.deepEqual(await finish(), [200, 200, 200, 200]);
  assert.equal(await stopped, 0);
  for (const pid of several.pids()) assert.ok(!isThere(pid), 'the primary ends last');
  assert.equal(spokenBy(several, since).size, 2, 'both spoke');
  assert.equal(several.logged('^a gateway process ended').length, exits, 'none was replaced');
  assert.deepEqual(await pendingOf(gateway), []);
  assert.equal(await gateway.balance(account), FUNDED - 4n * PRICE);
  assert.deepEqual(await audit(gateway.db), []);
}

test('several processes serve one port', async (t) => {
  const several = await startSeveral(t, { LOG_LEVEL: 'info', RATE_LIMT_MAX: '5' });
  const { url, adminUrl, gateway, child } = several;
  const attempts = () => several.logged('^a job attempt started').map(({ pid }) => pid);
  const runJob = async (account: string, key: string) => {
    const call = (path: string, sent?: Parameters<typeof send>[2]) => send(url, path, sent);
    const { jobId } = (await later({ call }, account, { key })).json;
    return (await untilJob({ call }, jobId, 'completed', 'failed')).json.status;
  };

  await t.test('both share the port, and one admin listener has their summed metrics', async (t) => {
    t.match(child.output(), /listens on http:\/\/127\.0\.0\.1:\d+ \(127\.0\.0\.1:\d+\), with 2 processes/);
    t.equal(several.logged('listens on').length, 1, 'it is announced once');
    t.equal(child.output().split('Unknown setting RATE_LIMT_MAX').length, 2, 'a misspelt setting is named once');
    t.equal((await fetch(`${adminUrl}/livez`)).status, 200);
    const ready = await fetch(`${adminUrl}/readyz`);
    t.strictSame(
      [ready.status, await ready.json()],
      [200, { status: 'ok', checks: { database: 'ok', schema: 'ok', processes: '2 of 2 listen' } }],
    );

    t.strictSame(new Set(await ask(url, 40)), new Set([200]));
    await until(() => several.logged('^request$').length === 40);
    const servers = new Set(several.logged('^request$').map(({ pid }) => pid));
    t.strictSame(servers, new Set(several.pids()), 'each of them has answered some');
    t.equal(servers.size, 2);
    t.ok(!servers.has(child.process.pid as number), 'the primary serves nothing');
    t.equal(await several.metric(answered('getHealth')), 40);

    const account = await gateway.fund(500);
    await holdOnCard(gateway.db, account, 100n);
    t.equal(await several.metric('speechgate_pending_holds'), 1, 'what the database tells is told once');
    const headers = { 'x-credit-account': account };
    for (let request = 0; request < 3; request++) {
      t.equal((await send(url, '/tts?text=Hello+world', { headers })).status, 200);
    }
    for (const metric of [
      answered('getSpeech'),
      'speechgate_holds_total{flow="card",event="captured"}',
      'speechgate_upstream_duration_seconds_count{outcome="ok"}',
    ]) {
      await until(async () => (await several.metric(metric)) === 3);
    }
  });

  const [first = 0, second = 0] = several.pids();

  await t.test('after kill -9 of one the other continues, and the hold ends with its lease', async (t) => {
    const customer = await gateway.fund(500);
    t.equal(await runJob(customer, 'first'), 'completed');
    await until(() => attempts().length > 0);
    t.strictSame(attempts(), [first], 'one of them runs the jobs');

    const { account, finish } = await runInBoth(several);
    process.kill(first, 'SIGKILL');
    await untilGone(first);
    t.strictSame(new Set(await ask(url, 20)), new Set([200]));
    const replies = await finish();
    t.strictSame(new Set(replies), new Set([200, 'lost']));
    const lost = replies.filter((reply) => reply === 'lost').length;
    const paid = FUNDED - BigInt(replies.length - lost) * PRICE;
    // One is the hold of the test itself.
    await until(async () => (await pendingOf(gateway)).length === lost + 1);
    t.ok((await gateway.balance(account)) < paid);
    await sweepVictim(gateway);
    t.equal(await gateway.balance(account), paid);
    t.strictSame(await audit(gateway.db), []);
  });

  await t.test('the ended process is replaced, and so is the one that runs the jobs', async (t) => {
    await until(async () => (await several.processes()) === '2 of 2 listen');
    await until(() => several.pids().length === 3);
    const third = several.pids()[2];
    t.strictSame(new Set(await ask(url, 20)), new Set([200]));
    t.strictSame(
      several.logged('^a gateway process ended').map(({ ended, signal, level }) => [ended, signal, level]),
      [[first, 'SIGKILL', 'error']],
    );
    t.equal(await runJob(await gateway.fund(500), 'second'), 'completed');
    await until(() => attempts().length > 1);
    t.strictSame(attempts(), [first, third]);
    t.ok(isThere(second));
  });

  await t.test('SIGTERM lets both finish their audio and exits 0 without holds', () => assertStops(several, 'SIGTERM'));
});

test('after kill -9 of the primary, running requests finish and every process exits', async (t) => {
  const several = await startSeveral(t);
  const { url, gateway, child, upstream } = several;
  const account = await gateway.fund(500);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const answer = await askForFlowingAudio(url, account, drip);
  await child.stop('SIGKILL');
  await t.rejects(send(url, '/'), /ECONNREFUSED/);
  await until(() => several.pids().filter(isThere).length === 1);
  drip.write(silentMp3(500));
  drip.end();
  const pieces: Buffer[] = [];
  for await (const piece of answer) pieces.push(piece);
  t.strictSame(Buffer.concat(pieces), Buffer.concat([silentMp3(500), silentMp3(500)]));
  for (const pid of several.pids()) await untilGone(pid);
  t.strictSame(await pendingOf(gateway), []);
  t.equal(await gateway.balance(account), FUNDED - PRICE);
  t.strictSame(await audit(gateway.db), []);
});

test('SIGHUP replaces each process by one with the new catalog and secrets, and no request fails', async (t) => {
  const folder = await temporaryFolder(t);
  const [CATALOG_FILE, secretFile] = [join(folder, 'catalog.json'), join(folder, 'secret')];
  const catalog = await readFile(projectFile('src/config/catalog-default.json'), 'utf8');
  await writeFile(CATALOG_FILE, catalog);
  await writeFile(secretFile, '1'.repeat(32));
  const files = { CATALOG_FILE, QUOTE_SECRET_FILE: secretFile };
  const several = await startSeveral(t, { LOG_LEVEL: 'info', EDGE_RATE_LIMIT_MAX: '1000000', ...files });
  const { url, child, gateway } = several;
  const models = async () => JSON.stringify((await send(url, '/tts/models')).json);
  const [first = 0, second = 0] = several.pids();
  const { account, finish } = await runInBoth(several);
  await writeFile(CATALOG_FILE, catalog.replaceAll('"markupPercent": ', '"markupPercent": 1'));
  await writeFile(secretFile, '2'.repeat(32));
  const before = await models();

  process.kill(child.process.pid as number, 'SIGHUP');
  let isReloaded = false;
  const statuses: number[] = [];
  const asking = (async () => {
    while (!isReloaded) statuses.push(...(await ask(url, 4)));
  })();
  await until(() => several.pids().length === 3);
  t.strictSame(await finish(), [200, 200, 200, 200], 'speech that has begun is finished and paid');
  await until(() => several.logged('^reloaded').length === 1);
  isReloaded = true;
  await asking;
  t.strictSame(new Set(statuses), new Set([200]));
  t.ok(!isThere(first) && !isThere(second));
  t.equal(await several.processes(), '2 of 2 listen');
  t.not(await models(), before);
  t.equal(several.logged('^a gateway process ended').length, 0);
  t.equal(await gateway.balance(account), FUNDED - 4n * PRICE);

  await writeFile(CATALOG_FILE, 'no JSON');
  process.kill(child.process.pid as number, 'SIGHUP');
  await until(
    () => several.logged('^not reloaded, because settings are wrong; .+ Fix them: CATALOG_FILE ').length === 1,
  );
  t.strictSame(new Set(await ask(url, 10)), new Set([200]));
  t.equal(several.pids().length, 4, 'none was replaced');

  await t.test('each scrape of /metrics succeeds while processes start and end', async (t) => {
    process.kill(several.pids()[3] as number, 'SIGKILL');
    await until(async () => {
      assert.equal((await fetch(`${several.adminUrl}/metrics`)).status, 200);
      return several.logged('^a gateway process ended').length === 4;
    });
    t.equal(await several.metric('speechgate_ready'), 1);
  });
  t.equal(await child.stop(), 0);
});

test('SIGHUP goes on when a process to be replaced is killed, SIGINT finishes audio', async (t) => {
  const several = await startSeveral(t, { LOG_LEVEL: 'info' });
  const { url, child, gateway } = several;
  const [first = 0, second = 0] = several.pids();
  const { finish } = await runInBoth(several);
  process.kill(child.process.pid as number, 'SIGHUP');
  await until(() => several.pids().length === 3);
  process.kill(second, 'SIGKILL');
  await until(() => several.pids().length === 4);
  await finish();
  await until(() => several.logged('^reloaded').length === 1);
  t.equal(await several.processes(), '2 of 2 listen');
  t.ok(!isThere(first) && !isThere(second));

  process.kill(child.process.pid as number, 'SIGHUP');
  await until(() => several.logged('^reloaded').length === 2);
  t.equal(await several.processes(), '2 of 2 listen');
  t.strictSame(new Set(await ask(url, 10)), new Set([200]));
  await sweepVictim(gateway);
  await assertStops(several, 'SIGINT');
});

test('a request that the primary hands to a process that is ending is answered by another one', async (t) => {
  const several = await startSeveral(t, { LOG_LEVEL: 'info' });
  const { url, child, gateway } = several;
  const sessions = async () =>
    (
      await gateway.db
        .selectFrom(sql<{ datname: string }>`pg_stat_activity`.as('session'))
        .where('datname', '=', sql<string>`current_database()`)
        .select('datname')
        .execute()
    ).length;
  const headers = { 'x-credit-account': await gateway.fund(500) };
  t.equal((await send(url, '/tts?text=Hello+world', { headers })).status, 200);
  await until(() => spokenBy(several).size === 1);
  // The next connection goes to the one that has waited longer.
  const ending = several.pids().find((pid) => !spokenBy(several).has(pid));
  const before = await sessions();

  process.kill(child.process.pid as number, 'SIGSTOP');
  const requests = Array.from({ length: 4 }, () => request(url, { agent: false }).end());
  const answers = requests.map((each) => once(each, 'response'));
  await Promise.all(requests.map(async (each) => once((await once(each, 'socket'))[0], 'connect')));
  process.kill(ending as number, 'SIGTERM');
  await until(async () => (await sessions()) < before);
  // Meanwhile it would have exited, if it did not wait for the primary.
  t.equal(await startScript(t, {}, '').ended(), 0);
  process.kill(child.process.pid as number, 'SIGCONT');
  for (const answer of answers) t.equal((await answer)[0].statusCode, 200);
  await until(() => several.pids().length === 3);

  await t.test('SIGHUP just before SIGTERM starts nothing that stays', async (t) => {
    process.kill(child.process.pid as number, 'SIGHUP');
    t.equal(await child.stop(), 0);
    t.notOk(several.pids().some(isThere));
  });
});

test('SIGHUP during the start works later, and SIGTERM during SIGHUP finishes audio', async (t) => {
  const several = await startSeveral(t, { LOG_LEVEL: 'info' }, async (child) => {
    await child.printed(/Server listening at/);
    process.kill(child.process.pid as number, 'SIGHUP');
  });
  const { child } = several;
  await until(() => several.logged('^reloaded').length === 1 && several.pids().length === 4);

  const { finish } = await runInBoth(several);
  process.kill(child.process.pid as number, 'SIGHUP');
  await until(() => several.pids().length === 5);
  process.kill(child.process.pid as number, 'SIGTERM');
  await until(() => several.logged('^stopping').length > 0);
  t.strictSame(await finish(), [200, 200, 200, 200]);
  t.equal(await child.ended(), 0);
  t.equal(several.pids().length, 5, 'no further one was started');
  t.equal(several.logged('^reload').length, 1);
});

test('a single process warns of an unset BASE_URL, and SIGHUP changes nothing in it', async (t) => {
  const settings = { HOST: '0.0.0.0', STRIPE_SECRET_KEY: '', STRIPE_API_BASE: '' };
  const { url, child, logged } = await startSeveral(t, { ...settings, WEB_CONCURRENCY: '1' });
  const [warning, ...more] = logged('^BASE_URL is unset, so links and payments contain');
  t.match(warning, { level: 'warn', msg: /http:\/\/0\.0\.0\.0:\d+\. / });
  t.strictSame(more, []);
  process.kill(child.process.pid as number, 'SIGHUP');
  await until(() => logged('^SIGHUP changed nothing, .+ Restart the service to apply changes$').length === 1);
  t.strictSame(await ask(url, 1), [200]);
  t.equal(await child.stop(), 0);
});

test("HOST is a Unix socket for the proxy's group, of two processes", async (t) => {
  const HOST = join(await temporaryFolder(t), 'gateway.sock');
  const { child, env, port } = await startSeveral(t, { HOST, BASE_URL: 'https://speech.example' });
  await child.printed(/listens on https:\/\/speech\.example \(\/.+gateway\.sock\)/);
  t.equal((await stat(HOST)).mode & 0o777, 0o660);
  await untilRefused(port);
  const [path, job] = ['/tts/jobs/', randomUUID()];
  for (const client of ['203.0.113.7', '203.0.113.8', undefined]) {
    const headers = client === undefined ? {} : { 'x-forwarded-for': client };
    const asked = request({ socketPath: HOST, path: `${path}${job}/audio`, headers }).end();
    const [answer] = await once(asked, 'response');
    answer.resume();
    assert.deepEqual([answer.statusCode, answer.headers['x-ratelimit-remaining']], [404, '29'], client);
  }

  await child.stop('SIGKILL');
  await until(() => connects(HOST).then((isOpen) => !isOpen));
  t.ok((await stat(HOST)).isSocket(), 'it is left behind');
  const again = startChild(t, 'src/main.ts', env);
  await again.printed(/listens on/);
  t.ok(await connects(HOST));
  t.equal(await again.stop(), 0);
  await t.rejects(stat(HOST), { code: 'ENOENT' });
});

test('R47: HOST that is a file ends the start with 78, and the file stays', async (t) => {
  const HOST = join(await temporaryFolder(t), 'a file');
  await writeFile(HOST, 'precious');
  const { env } = await severalSettings(t, { HOST, WEB_CONCURRENCY: '1', BASE_URL: 'https://speech.example' });
  const child = startChild(t, 'src/main.ts', env);
  t.equal(await child.ended(), 78);
  t.match(child.output(), /^HOST \/.+a file can't be opened as a socket \(EADDRINUSE\)\./m);
  t.equal(await readFile(HOST, 'utf8'), 'precious');
});

const connects = async (path: string): Promise<boolean> => {
  const socket = connect(path);
  const isOpen = await once(socket, 'connect').then(
    () => true,
    () => false,
  );
  socket.destroy();
  return isOpen;
};

test('SIGTERM during the start of the processes exits 0', async (t) => {
  const { env } = await severalSettings(t);
  const child = startChild(t, 'src/main.ts', env);
  await child.printed(/Server listening at/);
  t.equal(await child.stop(), 0);
  t.notMatch(child.output(), /listens on/);
});
