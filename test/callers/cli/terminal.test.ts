import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { type Test, test } from 'tap';
import { Output } from '../../../src/callers/cli/output.ts';
import { play } from '../../../src/callers/cli/say-command.ts';
import { openInBrowser } from '../../../src/callers/cli/top-up-command.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

/** A program that writes down its arguments and its environment. */
async function program(t: Test, name: string) {
  const folder = await temporaryFolder(t);
  const path = join(folder, name);
  const log = join(folder, 'log');
  await writeFile(path, `#!/bin/sh\necho "$*" >> '${log}'\nenv >> '${log}.env'\n`, { mode: 0o700 });
  return { folder, path, log: () => readFile(log, 'utf8').catch(() => ''), env: () => readFile(`${log}.env`, 'utf8') };
}

const SECRETS = { SPEECHGATE_WALLET_KEY: 'secret', speechgate_account: 'secret' };

test('only pages of the service and its card processor open in a browser', {
  skip: process.platform !== 'linux' && 'the program that opens is put in place for Linux',
}, async (t) => {
  const opener = await program(t, 'xdg-open');
  const env = { PATH: `${opener.folder}:${process.env.PATH}`, ...SECRETS };
  const [service, local] = ['https://speech.example', 'http://127.0.0.1:8080'];
  const refused: readonly (readonly [address: string, baseUrl: string])[] = [
    ['file:///etc/passwd', service],
    ['--help', service],
    ['https://checkout.stripe.com.evil.example/', service],
    ['https://checkout.stripe.com@evil.example/', service],
    ['https://user@speech.example/', service],
    ['http://checkout.stripe.com/', service],
    ['http://speech.example/', service],
    ['http://127.0.0.1:631/admin', service],
    ['https://127.0.0.1:631/admin', local],
  ];
  for (const [address, baseUrl] of refused) t.equal(await openInBrowser(address, baseUrl, env), false, address);
  const opened: readonly (readonly [address: string, baseUrl: string, href: string])[] = [
    ['HTTPS://Checkout.Stripe.com/c/pay a', service, 'https://checkout.stripe.com/c/pay%20a\n'],
    ['https://speech.example/top-up', service, 'https://speech.example/top-up\n'],
    ['http://127.0.0.1:8/pay', local, 'http://127.0.0.1:8/pay\n'],
  ];
  for (const [address, baseUrl, href] of opened) {
    t.equal(await openInBrowser(address, baseUrl, env), true, address);
    await until(async () => (await opener.log()).endsWith(href));
  }
  t.equal((await opener.log()).split('\n').length, 4);
  t.notMatch(await opener.env(), /speechgate_/i, 'no secrets');
});

test('a player gets an absolute path and no secrets', { skip: process.platform === 'win32' }, async (t) => {
  const player = await program(t, 'player');
  t.equal(await play([player.path, '-q'], '-vf', { PATH: process.env.PATH, ...SECRETS }), true);
  t.equal(await player.log(), `-q ${join(process.cwd(), '-vf')}\n`);
  t.notMatch(await player.env(), /speechgate_/i);
});

test('a terminal shows progress, but not with --json', async (t) => {
  let printed = '';
  let isDone = () => {};
  const work = new Promise<void>((resolve) => (isDone = resolve));
  const stderr = Object.assign(new PassThrough(), { isTTY: true });
  stderr.on('data', (text) => (printed += text));
  const host = { env: { TERM: 'xterm' }, stdout: new PassThrough(), stderr };
  const asked = [true, false].map((isJson) =>
    new Output(isJson, host).withProgress(isJson ? 'As JSON' : 'Asking', work),
  );
  await until(() => printed.includes('Asking … 1 s'));
  isDone();
  await Promise.all(asked);
  t.notMatch(printed, /As JSON/);
});
