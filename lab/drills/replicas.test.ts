/**
 * What docs/operate.md says of replicas behind HAProxy is done here with its configuration and its commands, under callers
 * of every flow: no request fails, and the books are right.
 */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Test, test } from 'tap';
import { freePort } from '../../src/sandbox/free-port.ts';
import { type Child, startChild, startCommand } from '../../test/support/child.ts';
import { testDatabase } from '../../test/support/database.ts';
import { blocksOf, run } from '../../test/support/documentation.ts';
import { missingProgram } from '../../test/support/missing-program.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { until } from '../../test/support/until.ts';
import type { Observe } from '../soak/callers/line.ts';
import { runCallers } from '../soak/run.ts';
import { openOutside } from '../soak/world/outside.ts';

const withoutHaproxy = missingProgram('haproxy', '-v') ?? missingProgram('socat', '-V') ?? false;
const SOCKET = '/run/haproxy.sock';
/** As ops/settings.env.example has it. */
const DRAIN_MS = '3000';
const DOCUMENTED_PORTS = ['8080', '8081', '8082', '9081', '9082'];
const BETWEEN_MS = 500;
const CALLERS = 12;

type Name = 'one' | 'two' | 'worker';
const PARTS: Readonly<Record<Name, { args: string[]; env: Record<string, string>; ports?: [string, string] }>> = {
  one: { args: ['--role=web'], env: { WEB_CONCURRENCY: '2' }, ports: ['8081', '9081'] },
  two: { args: ['--role=web'], env: {}, ports: ['8082', '9082'] },
  worker: { args: ['--role=worker'], env: {} },
};

test('docs/operate.md: a rolling restart behind HAProxy fails no request', { skip: withoutHaproxy }, async (t) => {
  const page = await startPage(t);
  await Promise.all([page.start('one'), page.start('two'), page.start('worker')]);
  const proxy = startCommand(t, ['haproxy', '-f', page.configuration], {});
  await until(async () => (await fetch(page.url).catch(() => undefined))?.status === 200);

  let answered = 0;
  const failures: string[] = [];
  const observe: Observe = ({ path }, { status, isWhole }) => {
    answered += 1;
    if (!isWhole || status >= 500) failures.push(`${path}: ${status}`);
  };
  const breakParts = async () => {
    for (const work of [
      () => restart(t, page, 'one'),
      () => restart(t, page, 'two'),
      async () => {
        assert.equal(await page.running.get('worker')?.stop(), 0);
        await page.start('worker');
      },
      () => learnOfStop(t, page),
    ]) {
      const before = answered;
      await sleep(BETWEEN_MS);
      await work();
      t.ok(answered > before, 'there were requests');
    }
    return [];
  };
  const { verdict } = await runCallers(t, page.service, { seed: page.url, callers: CALLERS, observe, breakParts });
  console.error(`${answered} requests`);
  t.strictSame(failures, []);
  t.ok(
    verdict.ends.some(({ flow, ended }) => flow === 'job' && ended === 'served'),
    'the worker had something to do',
  );
  t.strictSame(verdict.contradictions, []);
  t.equal(await proxy.stop('SIGUSR1'), 0, proxy.output());
});

type Page = Awaited<ReturnType<typeof startPage>>;

/** The page's example, at ports that are free, in a folder of its own. */
async function startPage(t: Test) {
  const folder = await temporaryFolder(t);
  const ports = new Map<string, string>();
  for (const port of DOCUMENTED_PORTS) ports.set(port, String(await freePort()));
  /** What the page has at another port or path of this test. */
  const here = (text: string): string =>
    text
      .replaceAll(SOCKET, join(folder, 'haproxy.sock'))
      .replace(/\b[89]08[012]\b/g, (port) => ports.get(port) as string);
  const configuration = join(folder, 'haproxy.cfg');
  await writeFile(configuration, here(await readFile('ops/haproxy.cfg', 'utf8')));

  const url = here('http://127.0.0.1:8080');
  const outside = await openOutside(t, folder);
  const { url: databaseUrl } = await testDatabase(t);
  const env = {
    ...{ ...outside.settings(true), DATABASE_URL: databaseUrl, BASE_URL: url, TRUST_PROXY: '127.0.0.1' },
    ...{ STOP_DRAIN_MS: DRAIN_MS, SPEECH_TIMEOUT_MS: '5000', RECONCILE_INTERVAL_MS: '1000' },
  };
  const origin = () => url;
  const service = { ...outside.service, gateways: [origin, origin] as const, databaseUrl, env };
  const running = new Map<Name, Child>();
  /** Resolves when its /readyz answers 200. */
  const start = async (name: Name) => {
    const { args, env: own, ports = ['0', '0'] } = PARTS[name];
    const [PORT, ADMIN_PORT] = name === 'worker' ? [await freePort(), await freePort()] : ports.map(here);
    const listening = { PORT: String(PORT), ADMIN_PORT: String(ADMIN_PORT) };
    const child = startChild(t, 'src/main.ts', { ...env, ...own, ...listening }, args);
    await child.printed(/listens on|runs jobs/);
    await until(async () => (await fetch(`http://127.0.0.1:${ADMIN_PORT}/readyz`)).status === 200);
    running.set(name, child);
  };
  return { url, configuration, folder, running, start, here, service };
}

/** Follows the page: drain, stop and start, ready. */
async function restart(t: Test, page: Page, name: Name): Promise<void> {
  const blocks = await blocksOf('docs/operate.md');
  const block = blocks.find(({ code }) => code.includes('socat stdio'))?.code;
  const commands = page
    .here(block ?? assert.fail('the page has no commands'))
    .replace(/(?<=gateways[/,])one/g, name)
    .split('\n');
  const [drain = '', ...ready] = commands.filter((command) => command.includes('socat stdio'));
  await run(t, page.folder, drain);
  assert.equal(await page.running.get(name)?.stop(), 0);
  await page.start(name);
  for (const command of ready) await run(t, page.folder, command);
}

/** By STOP_DRAIN_MS alone: HAProxy finds that one of them is not ready any more, while that still serves. */
async function learnOfStop(t: Test, page: Page): Promise<void> {
  let code: number | null | undefined;
  const stopping = page.running.get('one')?.stop();
  void stopping?.then((ended) => {
    code = ended;
  });
  const states = page.here(`echo 'show stat' | socat stdio ${SOCKET}`);
  await until(async () => code !== undefined || /^gateways,one,.*,DOWN,/m.test(await run(t, page.folder, states)));
  assert.equal(code, undefined, 'it goes on until HAProxy knows');
  assert.equal(await stopping, 0);
}
