import { createServer } from 'node:net';
import { type Test, test } from 'tap';
import { startChild } from '../support/child.ts';
import { emptyDatabase } from '../support/database.ts';
import { severalSettings } from '../support/several-processes.ts';

const X402 = {
  X402_PAY_TO: '0x00000000000000000000000000000000000000a1',
  X402_FACILITATOR_URL: 'http://127.0.0.1:1',
  X402_RPC_URL: 'http://127.0.0.1:1',
};

const count = (text: string, part: string): number => text.split(part).length - 1;

async function occupy(t: Test, port: number): Promise<void> {
  const server = createServer().listen(port, '127.0.0.1');
  t.teardown(() => server.close());
  await new Promise((resolve) => server.once('listening', resolve));
}

test('R47: every bad setting is named once for all processes, with the fix, and the start exits 78', async (t) => {
  const child = startChild(t, 'src/main.ts', {
    WEB_CONCURRENCY: '2',
    PORT: '99999',
    BASE_URL: 'nonsense',
    SPEECH_API_KEY: 'key',
    SPEECH_TIMEOUT_MS: 'long',
    STRIPE_API_BASE: 'http://127.0.0.1:1',
    TRUST_PROXY: '1',
    CATALOG_FILE: '/nowhere/catalog.json',
    RATE_LIMT_MAX: '5',
  });
  t.equal(await child.ended(), 78);
  for (const name of [
    'PORT',
    'BASE_URL',
    'DATABASE_URL',
    'SPEECH_BASE_URL',
    'SPEECH_TIMEOUT_MS',
    'STRIPE_SECRET_KEY',
    'TRUST_PROXY',
    'CATALOG_FILE',
  ]) {
    t.equal(child.output().match(new RegExp(`^${name} .+\\. .+`, 'gm'))?.length, 1, `${name} and its fix`);
  }
  const misspelt = /^Unknown setting RATE_LIMT_MAX is ignored\. Did you mean RATE_LIMIT_MAX\?$/gm;
  t.equal(child.output().match(misspelt)?.length, 1);
});

for (const [which, name] of [
  ['port', 'PORT'],
  ['adminPort', 'ADMIN_PORT'],
] as const) {
  test(`a ${which} in use is reported once, and the start exits 78`, async (t) => {
    const settings = await severalSettings(t);
    await occupy(t, settings[which]);
    const child = startChild(t, 'src/main.ts', settings.env);
    t.equal(await child.ended(), 78);
    t.equal(count(child.output(), `${name} ${settings[which]} is in use on 127.0.0.1. `), 1);
    t.notMatch(child.output(), /listens on|EADDRINUSE|^ +at /m);
  });
}

test('a wrong password and a DATA_DIR that is a file are both named, and the start exits 78', async (t) => {
  const { env, databaseUrl } = await severalSettings(t, { WEB_CONCURRENCY: '1', DATA_DIR: '/dev/null' });
  const wrong = new URL(databaseUrl);
  wrong.password = 'wrong';
  const child = startChild(t, 'src/main.ts', { ...env, DATABASE_URL: wrong.href });
  t.equal(await child.ended(), 78);
  t.match(child.output(), /^DATABASE_URL can't be used \(password authentication failed .+ Correct/m);
  t.match(
    child.output(),
    /^The folder of DATA_DIR, \/dev\/null\/audio, is not writable \(ENOTDIR\)\. .+ set DATA_DIR to another folder/m,
  );
  t.notMatch(child.output(), /paused flows/);
});

test('a start on an empty schema says to run speechgate migrate', async (t) => {
  const { url } = await emptyDatabase(t);
  const { env } = await severalSettings(t, { WEB_CONCURRENCY: '1', DATABASE_URL: url });
  const child = startChild(t, 'src/main.ts', env);
  await child.printed(/listens on/);
  t.match(
    child.output(),
    /"the tables in the database are missing or out of date, so the service is not ready\. Run speechgate migrate"/,
  );
  t.equal(await child.stop('SIGTERM'), 0);
});

test('a closed database port and a dead node are told first, and the stop is told', async (t) => {
  const { env, adminPort } = await severalSettings(t, {
    ...X402,
    WEB_CONCURRENCY: '1',
    DATABASE_URL: 'postgres://speech:secret@127.0.0.1:1/speech',
  });
  const child = startChild(t, 'src/main.ts', env);
  await child.printed(/listens on/);
  const lines = child
    .output()
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  const [first] = lines.filter(({ level }) => level === 'error');
  t.match(`${first.instance} ${first.version}`, /^\S+:\d+ \d+\.\d+\.\d+$/);
  t.match(
    first.msg,
    /^the database in DATABASE_URL is unavailable \(connect ECONNREFUSED 127\.0\.0\.1:1\)\. Start the database server/,
  );
  await child.printed(/X402_RPC_URL: no node gives a usable answer/);
  const ready = await fetch(`http://127.0.0.1:${adminPort}/readyz`);
  const { checks } = (await ready.json()) as { checks: Record<string, string> };
  t.strictSame([ready.status, checks.chain], [503, 'unreachable']);
  t.match(checks.database ?? '', /^unavailable: connect ECONNREFUSED/);
  t.equal(await child.stop('SIGTERM'), 0);
  t.match(child.output(), /"msg":"stopping: .+\n(.+\n)*.+"msg":"stopped"/);
});
