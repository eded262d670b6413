import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'tap';
import { openInBrowser } from '../../../src/cli/caller/open-in-browser.ts';
import { withProgress } from '../../../src/cli/caller/progress.ts';
import { until } from '../../support/until.ts';

test('only a page of the web, or of this machine, is opened in a browser', {
  skip: process.platform !== 'linux' && 'the program that opens is put in place for Linux',
}, async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-opener-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const opened = join(folder, 'opened');
  await writeFile(join(folder, 'xdg-open'), `#!/bin/sh\necho "$1" >> '${opened}'\n`, { mode: 0o700 });
  const { PATH } = process.env;
  t.teardown(() => Object.assign(process.env, { PATH }));
  process.env.PATH = `${folder}:${PATH}`;
  for (const address of ['file:///etc/passwd', 'http://speech.example/', 'javascript:alert(1)', '--help', '/top-up']) {
    assert.equal(await openInBrowser(address), false, address);
  }
  const read = () => readFile(opened, 'utf8').catch(() => '');
  for (const [address, href] of [
    ['HTTPS://pay.example/a b', 'https://pay.example/a%20b\n'],
    ['http://127.0.0.1:8/pay', 'http://127.0.0.1:8/pay\n'],
  ] as const) {
    assert.equal(await openInBrowser(address), true);
    await until(async () => (await read()).endsWith(href));
  }
  assert.equal((await read()).split('\n').length, 3);
});

test('a terminal sees what is waited for, and with --json nothing', async (t) => {
  t.intercept(process.stderr, 'isTTY', { value: true });
  const { TERM = '' } = process.env;
  t.teardown(() => Object.assign(process.env, { TERM }));
  process.env.TERM = 'xterm';
  const written = t.capture(process.stderr, 'write');
  for (const isJson of [true, false]) {
    const work = new Promise<void>((resolve) => setTimeout(resolve, 1_200));
    await withProgress('Asking', isJson, work);
    const lines = written().map(({ args }) => args[0]);
    assert.equal(
      lines.some((line) => String(line).includes('Asking …')),
      !isJson,
    );
  }
});
