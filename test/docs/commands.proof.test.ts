/**
 * What README and docs tell people to type is run here exactly as it stands there, in a fresh copy of the project: first
 * by who tries it, on a sandbox, then by who operates it, on a gateway with a database of its own.
 */
import assert from 'node:assert/strict';
import { readFile, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { sql } from 'kysely';
import { type Test, t, test } from 'tap';
import { privateKeyToAccount } from 'viem/accounts';
import type { SignedServiceMetadata, TtsModelsResponse } from '../../src/contract/types.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import type { SandboxFile } from '../../src/sandbox/sandbox-file.ts';
import { breakStream } from '../support/broken-stream.ts';
import { testDatabase } from '../support/database.ts';
import { blocksOf, shownAs } from '../support/documentation.ts';
import { startGateway } from '../support/gateway.ts';
import { speaksToHaproxy } from '../support/haproxy.ts';
import { copyProject } from '../support/project-copy.ts';
import { rolledBack } from '../support/rolled-back.ts';
import { S3_CREDENTIALS, startS3Server } from '../support/s3-server.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';
import { encodePayment } from '../support/x402.ts';
import {
  areSettings,
  ensureRole,
  fingerprintsIn,
  PROJECT,
  printedCommands,
  run,
  shell,
  unnamedPayment,
} from './commands.ts';

const DOCUMENTED_PORT = 8080;
const READY = /Ctrl-C stops the sandbox/;
const LISTENS = /listens on/;
/** What `.ci/run` does in a fresh clone, before it comes to these tests and after them. */
const INSTALL = 'npm ci';
const SUITE = `${INSTALL} && npm test`;
const SANDBOX = 'npm run sandbox';
const START = 'npm run migrate\nnpm start';

// Each has a copy of its own, and all but README's first one a port of its own.
t.jobs = 2;

/** README's addresses name the port that a sandbox takes when it is free. */
async function portIsTaken(): Promise<string | false> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once('error', () => resolve(`port ${DOCUMENTED_PORT}, which README names, is taken`));
    server.listen(DOCUMENTED_PORT, '127.0.0.1', () => server.close(() => resolve(false)));
  });
}

const readSandbox = async (folder: string): Promise<SandboxFile> =>
  JSON.parse(await readFile(join(folder, 'data', 'sandbox.json'), 'utf8'));

test('README: what it tells to type works as it stands, and shows what it says', {
  skip: await portIsTaken(),
}, async (t) => {
  const folder = await installedCopy(t);
  const blocks = await blocksOf('README.md');
  const commands = blocks.filter(({ language }) => language === 'sh').map(({ code }) => code);
  assert.deepEqual(commands.slice(0, 1), [`${INSTALL} && ${SANDBOX}`]);
  let shown = '';
  const sandbox = shell(t, folder, SANDBOX);
  await sandbox.printed(READY);
  const printed = printedCommands(sandbox.output());
  shown += sandbox.output();
  assert.ok(printed.length >= 11, sandbox.output());
  const { wallet, baseUrl } = await readSandbox(folder);
  const env = {
    WALLET_KEY: wallet?.privateKey ?? assert.fail('there is no chain'),
    SPEECHGATE_CONFIG_DIR: join(folder, 'config'),
  };

  for (const command of printed.filter((line) => line.startsWith('curl'))) {
    await t.test(command, async (t) => {
      shown += await run(t, folder, command);
    });
  }
  for (const [at, { language, code }] of blocks.entries()) {
    if (code === commands[0] || code === SUITE || code === START) continue;
    await t.test(`${language}: ${code.split('\n')[0]}`, async (t) => {
      if (language === 'sh') shown += await run(t, folder, code, env);
      else if (language === 'text') assert.match(shown, shownAs(code));
      else if (language === 'ini') await areSettings(code);
      else if (language === 'js') {
        await writeFile(join(folder, `readme-${at}.mjs`), code);
        const isClient = code.includes('speechgate/client');
        const build = isClient ? 'npm run -s build && ' : '';
        const output = await run(t, folder, `${build}node readme-${at}.mjs`, env);
        assert.match(
          output,
          isClient ? /^card\.mp3 \{\n {2}flow: 'card',\n {2}chargedMicroUsd: 630n,/ : /^200 audio\/mpeg\n$/,
        );
      } else if (language === 'json') {
        const payload = { ...(await unnamedPayment(baseUrl, env.WALLET_KEY)), ...JSON.parse(code) };
        const headers = { 'payment-signature': encodePayment(payload) };
        assert.equal((await fetch(`${baseUrl}/x402/tts?text=Hello+world`, { headers })).status, 200);
      } else assert.fail(`nobody knows what to do with a block of ${language}`);
    });
  }
  for (const command of printed.filter((line) => line.startsWith('npm'))) {
    await t.test(command, async (t) => {
      await run(t, folder, command);
    });
  }
  await t.test('docs/operations.md: a caller comes to the fingerprints that the operator sees', async (t) => {
    const [program] = (await blocksOf('docs/operations.md')).filter(({ language }) => language === 'js');
    await writeFile(join(folder, 'fingerprints.mjs'), program?.code ?? '');
    const compared = await run(t, folder, 'node fingerprints.mjs', { BASE_URL: baseUrl });
    const shown = await run(t, folder, 'SIGNING_KEYS_FILE=data/signing-keys.json npm run keys -- --show');
    const printed = fingerprintsIn(shown);
    assert.equal(printed.length, 2);
    for (const fingerprint of printed) assert.ok(compared.includes(fingerprint));
  });
  await t.test('docs/prepaid.md: its program speaks', async () => {
    const [program] = (await blocksOf('docs/prepaid.md')).filter(({ language }) => language === 'js');
    const file = join(folder, 'prepaid-program.mjs');
    await writeFile(file, `${program?.code}\nexport { speak };\n`);
    const { speak } = await import(pathToFileURL(file).href);
    const { payload } = (await (
      await fetch(`${baseUrl}/.well-known/x402-service-metadata`)
    ).json()) as SignedServiceMetadata;
    const answer = await speak(privateKeyToAccount(env.WALLET_KEY as `0x${string}`), payload, 'Hello world');
    assert.deepEqual([answer.status, answer.headers.get('x-x402-charged')], [200, '198']);
  });
  await sandbox.stop('SIGINT');

  await t.test(SUITE, async () => {
    const ci = await readFile(join(folder, '.ci/run'), 'utf8');
    assert.ok(commands.includes(SUITE));
    for (const command of SUITE.split(' && ')) assert.match(ci, new RegExp(`^${command}$`, 'm'));
  });
  await t.test(START.replace('\n', '; '), async (t) => {
    assert.ok(commands.includes(START));
    const { url } = await testDatabase(t);
    const service = shell(t, folder, START, { DATABASE_URL: url, SPEECH_BASE_URL: 'embedded:' });
    await service.printed(LISTENS);
    assert.equal((await fetch(`http://127.0.0.1:${DOCUMENTED_PORT}`)).status, 200);
    await service.stop();
  });
});

test('docs/operations.md: its commands lead from a broken stream to the line, the charge and its end', async (t) => {
  const folder = await installedCopy(t);
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const { databaseUrl, db, fund } = await startGateway(t);
  const url = `http://127.0.0.1:${await freePort(undefined)}`;
  const settings = {
    DATABASE_URL: databaseUrl,
    PORT: new URL(url).port,
    SPEECH_BASE_URL: upstream.url,
    STRIPE_SECRET_KEY: 'sk_test_gateway',
  };
  const service = shell(t, folder, 'npm start --silent | tee speechgate.log', settings);
  await service.printed(LISTENS);
  const traceId = await breakStream(url, await fund(500), upstream);
  await service.printed(new RegExp(`${traceId}.*"msg":"request"`));

  const outputs: string[] = [];
  // test/journeys/directories.proof.test.ts runs the validators.
  const blocks = (await blocksOf('docs/operations.md')).filter(
    ({ code }) => !speaksToHaproxy(code) && !code.startsWith('npx mppx'),
  );
  for (const { language, code } of blocks) {
    await t.test(`${language}: ${code.split('\n')[0]}`, async (t) => {
      if (code.endsWith('npm start')) {
        const documented = shell(t, folder, code, { ...settings, PORT: String(await freePort(undefined)) });
        await documented.printed(LISTENS);
        await documented.stop();
      } else if (language === 'sh')
        outputs.push(await run(t, folder, code, { DATABASE_URL: databaseUrl, TRACE_ID: traceId }));
      else if (language === 'sql') {
        await rolledBack(db, async (transaction) => {
          await ensureRole(transaction, 'speechgate');
          await sql.raw(code).execute(transaction);
        });
      } else if (language !== 'js' && language !== 'haproxy') assert.equal(language, 'text');
    });
  }
  const [line = '', books = '', made = '', kept = ''] = outputs;
  const { end, flow, chargedMicroUsd } = JSON.parse(
    line.split('\n').find((text) => text.includes('"request"')) ?? '{}',
  );
  assert.deepEqual({ end, flow, chargedMicroUsd }, { end: 'broken_off', flow: 'card', chargedMicroUsd: 0 });
  assert.match(books, /\scharge\s.*\svoided\s+198\s/);
  assert.deepEqual(fingerprintsIn(kept), fingerprintsIn(made));
  await service.stop();
});

test('docs/audio-store.md: the service starts on a bucket as it says', async (t) => {
  const folder = await installedCopy(t);
  const bucket = await startS3Server('voices');
  t.teardown(() => bucket.stop());
  const { url: databaseUrl } = await testDatabase(t);
  const port = String(await freePort(undefined));
  const env = { ...S3_CREDENTIALS, AWS_ENDPOINT_URL: bucket.endpoint, DATABASE_URL: databaseUrl, PORT: port };
  for (const { code } of (await blocksOf('docs/audio-store.md')).filter(({ language }) => language === 'sh')) {
    const service = shell(t, folder, code, env);
    await service.printed(LISTENS);
    await service.stop();
  }
});

for (const [which, models] of [
  ['its example', ['acme/tts-1']],
  ['its command', ['openai/tts-1', 'openai/tts-1-hd']],
] as const) {
  test(`docs/catalog.md: with the catalog of ${which} every command that the sandbox prints works`, async (t) => {
    const folder = await installedCopy(t);
    const blocks = await blocksOf('docs/catalog.md');
    const [example, command] = ['json', 'sh'].map(
      (language) => blocks.find((block) => block.language === language)?.code,
    );
    await writeFile(join(folder, 'acme.json'), example ?? '');
    const line = which === 'its command' ? (command ?? '') : 'CATALOG_FILE=acme.json npm run sandbox';
    const sandbox = shell(t, folder, line, { PORT: String(await freePort(undefined)) });
    await sandbox.printed(READY);
    const { baseUrl } = await readSandbox(folder);
    const offered = (await (await fetch(`${baseUrl}/tts/models`)).json()) as TtsModelsResponse;
    assert.deepEqual(
      offered.models.map(({ id }) => id),
      models,
    );
    for (const printed of printedCommands(sandbox.output())) {
      await t.test(printed, async (t) => {
        await run(t, folder, printed);
      });
    }
    await sandbox.stop('SIGINT');
  });
}

/** A copy with the packages that are installed here. */
async function installedCopy(t: Test): Promise<string> {
  const folder = await copyProject(t);
  await symlink(join(PROJECT, 'node_modules'), join(folder, 'node_modules'));
  return folder;
}
