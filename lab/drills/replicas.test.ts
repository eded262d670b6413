/** What docs/operate.md says of replicas behind HAProxy is done here with its configuration and its commands. */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { freePort } from '../../src/sandbox/free-port.ts';
import { type Child, startChild, startCommand } from '../../test/support/child.ts';
import { blocksOf, run } from '../../test/support/documentation.ts';
import { send } from '../../test/support/gateway.ts';
import { severalSettings } from '../../test/support/several-processes.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { until } from '../../test/support/until.ts';
import { speaksToHaproxy, withoutHaproxy } from './haproxy.ts';

const LISTENS = /listens on/;
const SOCKET = '/run/haproxy.sock';
/** As ops/settings.env.example has it. */
const DRAIN_MS = '3000';
const DOCUMENTED_PORTS = ['8080', '8081', '8082', '9081', '9082'] as const;
type DocumentedPort = (typeof DOCUMENTED_PORTS)[number];

test('docs/operate.md: a rolling restart behind HAProxy fails no request', {
  skip: withoutHaproxy,
}, async (t) => {
  const page = await startPage(t);
  await Promise.all([page.start('one'), page.start('two')]);
  const proxy = startCommand(t, ['haproxy', '-f', page.configuration], {});
  await until(async () => (await answer(page.url)) === 200);

  const answers: (number | string)[] = [];
  let isOver = false;
  t.teardown(() => {
    isOver = true;
  });
  const callers = Array.from({ length: 4 }, async () => {
    while (!isOver) answers.push(await answer(page.url));
  });
  await restart(t, page, 'one');
  const before = answers.length;
  await restart(t, page, 'two');
  const after = answers.length;
  await learnOfStop(t, page);
  isOver = true;
  await Promise.all(callers);
  t.ok(before > 0 && after > before && answers.length > after, 'there were requests at each stop');
  t.strictSame(new Set(answers), new Set([200]));
  t.equal(await proxy.stop('SIGUSR1'), 0, proxy.output());
});

type Name = 'one' | 'two';

interface Page {
  /** Where callers come in. */
  readonly url: string;
  /** The file that HAProxy reads. */
  readonly configuration: string;
  readonly folder: string;
  readonly running: Map<Name, Child>;
  /** Starts the gateway of this name; resolves when its /readyz answers 200. */
  start(name: Name): Promise<void>;
  /** What the page has at another port or path of this test. */
  here(text: string): string;
}

/** The page's example, at ports that are free, in a folder of its own. */
async function startPage(t: Test): Promise<Page> {
  const folder = await temporaryFolder(t);
  const free = {} as Record<DocumentedPort, string>;
  for (const port of DOCUMENTED_PORTS) free[port] = String(await freePort());
  const here = (text: string): string =>
    text
      .replaceAll(SOCKET, join(folder, 'haproxy.sock'))
      .replace(/\b[89]08[012]\b/g, (port) => free[port as DocumentedPort]);
  const configuration = join(folder, 'haproxy.cfg');
  await writeFile(configuration, here(await readFile('ops/haproxy.cfg', 'utf8')));

  const url = `http://127.0.0.1:${free['8080']}`;
  const { env } = await severalSettings(t, {
    WEB_CONCURRENCY: '1',
    BASE_URL: url,
    TRUST_PROXY: '127.0.0.1',
    STOP_DRAIN_MS: DRAIN_MS,
    // All calls come from one address.
    EDGE_RATE_LIMIT_MAX: '1000000',
  });
  const running = new Map<Name, Child>();
  const ports = { one: [free['8081'], free['9081']], two: [free['8082'], free['9082']] } as const;
  const start = async (name: Name) => {
    const [PORT, ADMIN_PORT] = ports[name];
    const child = startChild(t, 'src/main.ts', { ...env, PORT, ADMIN_PORT });
    await child.printed(LISTENS);
    await until(async () => (await fetch(`http://127.0.0.1:${ADMIN_PORT}/readyz`)).status === 200);
    running.set(name, child);
  };
  return { url, configuration, folder, running, start, here };
}

/** Follows the page: drain, stop and start, ready. */
async function restart(t: Test, page: Page, name: Name): Promise<void> {
  const blocks = await blocksOf('docs/operate.md');
  const block = blocks.find(({ code }) => speaksToHaproxy(code))?.code ?? assert.fail('the page has no commands');
  const commands = page
    .here(block)
    .replace(/(?<=gateways[/,])one/g, name)
    .split('\n');
  const [drain = '', ...ready] = commands.filter(speaksToHaproxy);
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

/** The status, or why there is none or it is not of the contract. */
const answer = (url: string): Promise<number | string> => send(url, '/').then(({ status }) => status, String);
