/**
 * What README and docs tell people to type is run here exactly as it stands there, in a fresh copy of the project: first
 * by who tries it, on a sandbox, then by who operates it, on a gateway with a database of its own.
 */
import assert from 'node:assert/strict';
import { cp, readFile, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { x402Client } from '@x402/fetch';
import { calculateJwkThumbprint, type JWK } from 'jose';
import { sql } from 'kysely';
import { type Test, t, test } from 'tap';
import { privateKeyToAccount } from 'viem/accounts';
import type { TtsModelsResponse } from '../../src/contract/types.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import type { SandboxFile } from '../../src/sandbox/sandbox-file.ts';
import { detectAudioType } from '../../src/speech/audio-format.ts';
import { breakStream } from '../../test/support/broken-stream.ts';
import { testDatabase } from '../../test/support/database.ts';
import { blocksOf, run, runBlocks, shell } from '../../test/support/documentation.ts';
import { startGateway } from '../../test/support/gateway.ts';
import { PROJECT } from '../../test/support/project.ts';
import { copyProject } from '../../test/support/project-copy.ts';
import { rolledBack } from '../../test/support/rolled-back.ts';
import { S3_CREDENTIALS, startS3Server } from '../../test/support/s3-server.ts';
import { testUpstream } from '../../test/support/stub-upstream.ts';
import { decodeHeader, encodePayment } from '../../test/support/x402.ts';

const printedCommands = (output: string): string[] =>
  output
    .replaceAll('\\\n', ' ')
    .split('\n')
    .filter((line) => /^ {2}(curl|npm run) /.test(line))
    .map((line) => line.trim());

const fingerprintsIn = (output: string): string[] =>
  [...output.matchAll(/^ +fingerprint +(\S+)$/gm)].map(([, fingerprint]) => fingerprint as string);

/** The thumbprints of the keys in the signed metadata, as a caller calculates them. */
async function publishedFingerprints(baseUrl: string): Promise<string[]> {
  const response = await fetch(`${baseUrl}/.well-known/x402-service-metadata`);
  const { payload } = (await response.json()) as { payload: { trust: { keys: { publicKeyJwk: JWK }[] } } };
  return Promise.all(payload.trust.keys.map(({ publicKeyJwk }) => calculateJwkThumbprint(publicKeyJwk)));
}

/** A payment for Hello world without an identifier. */
async function unnamedPayment(baseUrl: string, key: string): Promise<object> {
  const asked = await fetch(`${baseUrl}/x402/tts?text=Hello+world`);
  const wallet = privateKeyToAccount(key as `0x${string}`);
  const client = new x402Client().register('eip155:8453', new ExactEvmScheme(wallet));
  return client.createPaymentPayload(decodeHeader(asked.headers.get('payment-required')));
}

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

test('README: its commands work and print what it shows', {
  skip: await portIsTaken(),
}, async (t) => {
  const folder = await installedCopy(t);
  const blocks = await blocksOf('README.md');
  const commands = blocks.filter(({ language }) => language === 'sh').map(({ code }) => code);
  t.strictSame(commands.slice(0, 1), [`${INSTALL} && ${SANDBOX}`]);
  let shown = '';
  const sandbox = shell(t, folder, SANDBOX);
  await sandbox.printed(READY);
  const more = await readFile(join(folder, 'data', 'try.txt'), 'utf8');
  const printed = printedCommands(more);
  shown += sandbox.output();
  t.ok(printed.length >= 11, more);
  const { wallet, baseUrl } = await readSandbox(folder);
  const walletKey = wallet?.privateKey ?? assert.fail('there is no chain');
  const env = { SPEECHGATE_CONFIG_DIR: join(folder, 'config') };

  for (const command of printed.filter((line) => line.startsWith('curl'))) {
    await t.test(command, async (t) => {
      shown += await run(t, folder, command);
    });
  }
  const startless = blocks.filter(({ code }) => code !== commands[0] && code !== START);
  await runBlocks(t, startless, { folder, env, shown });
  for (const { language, code } of await blocksOf('docs/api.md')) {
    await t.test(`docs/api.md: ${code.split('\n')[0]}`, async (t) => {
      if (language === 'sh') await run(t, folder, code);
      else if (language === 'json') {
        const payload = { ...(await unnamedPayment(baseUrl, walletKey)), ...JSON.parse(code) };
        const headers = { 'payment-signature': encodePayment(payload) };
        t.equal((await fetch(`${baseUrl}/x402/tts?text=Hello+world`, { headers })).status, 200);
      } else assert.fail(`nobody knows what to do with a block of ${language}`);
    });
  }
  await t.test('docs/api.md: its examples produce audio', async (t) => {
    for (const file of ['x402.mp3', 'prepaid-by-hand.mp3']) {
      t.equal(detectAudioType(await readFile(join(folder, file))), 'audio/mpeg');
    }
  });
  for (const command of printed.filter((line) => line.startsWith('npm'))) {
    await t.test(command, async (t) => {
      await run(t, folder, command);
    });
  }
  await t.test('speechgate keys --show prints the fingerprints of the published keys', async (t) => {
    const published = await publishedFingerprints(baseUrl);
    const shown = await run(t, folder, 'SIGNING_KEYS_FILE=data/signing-keys.json node dist/speechgate.js keys --show');
    const printed = fingerprintsIn(shown);
    t.equal(printed.length, 2);
    for (const fingerprint of printed) t.ok(published.includes(fingerprint));
  });
  await sandbox.stop('SIGINT');

  await t.test(SUITE, async (t) => {
    const ci = await readFile(join(folder, '.ci/run'), 'utf8');
    t.ok((await blocksOf('CONTRIBUTING.md')).some(({ code }) => code === SUITE));
    for (const command of SUITE.split(' && ')) t.match(ci, new RegExp(`^${command}$`, 'm'));
  });
  await t.test(START.replace('\n', '; '), async (t) => {
    t.ok(commands.includes(START));
    const { url } = await testDatabase(t);
    const service = shell(t, folder, START, { DATABASE_URL: url, SPEECH_BASE_URL: 'http://127.0.0.1:1/v1' });
    await service.printed(LISTENS);
    t.equal((await fetch(`http://127.0.0.1:${DOCUMENTED_PORT}`)).status, 200);
    await service.stop();
  });
});

test('docs/operate.md: its commands start the service and find a broken stream', async (t) => {
  const folder = await installedCopy(t);
  const upstream = await testUpstream(t);
  const { databaseUrl, db, fund } = await startGateway(t);
  const url = `http://127.0.0.1:${await freePort()}`;
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

  let output = '';
  const sections = ['First start', 'Several processes and the proxy', 'Logs', 'Traces'];
  const blocks = (await Promise.all(sections.map((section) => blocksOf('docs/operate.md', section)))).flat();
  for (const { language, code } of blocks.filter(({ code }) => !code.includes('socat stdio'))) {
    await t.test(`${language}: ${code.split('\n')[0]}`, async (t) => {
      if (/(npm start|dist\/main\.js)$/.test(code)) {
        const documented = shell(t, folder, code, { ...settings, PORT: String(await freePort()) });
        await documented.printed(LISTENS);
        await documented.stop();
      } else if (language === 'sh') {
        output += await run(t, folder, code, { DATABASE_URL: databaseUrl, TRACE_ID: traceId });
      } else {
        t.equal(language, 'sql');
        await rolledBack(db, async (transaction) => void (await sql.raw(code).execute(transaction)));
      }
    });
  }
  const { end, flow, chargedMicroUsd } = JSON.parse(
    output.split('\n').find((text) => text.includes('"request"')) ?? '{}',
  );
  t.strictSame({ end, flow, chargedMicroUsd }, { end: 'broken_off', flow: 'card', chargedMicroUsd: 0 });
  t.match(output, /\scharge\s.*\svoided\s+0\.000198\s/);
  await service.stop();
});

test('docs/scaling.md: the service starts with a bucket as documented', async (t) => {
  const folder = await installedCopy(t);
  const bucket = await startS3Server('voices');
  t.teardown(() => bucket.stop());
  const { url: databaseUrl } = await testDatabase(t);
  const port = String(await freePort());
  const env = { ...S3_CREDENTIALS, AWS_ENDPOINT_URL: bucket.endpoint, DATABASE_URL: databaseUrl, PORT: port };
  const [block, ...others] = await blocksOf('docs/scaling.md', 'Audio store');
  t.strictSame(others, []);
  const service = shell(t, folder, block?.code ?? '', env);
  await service.printed(LISTENS);
  await service.stop();
});

for (const [which, models] of [
  ['its example', ['acme/tts-1']],
  ['its command', ['openai/tts-1', 'openai/tts-1-hd']],
] as const) {
  test(`docs/catalog.md: every printed command works with the catalog of ${which}`, async (t) => {
    const folder = await installedCopy(t);
    const blocks = await blocksOf('docs/catalog.md');
    const [example, command] = ['json', 'sh'].map(
      (language) => blocks.find((block) => block.language === language)?.code,
    );
    await writeFile(join(folder, 'acme.json'), example ?? '');
    const line = which === 'its command' ? (command ?? '') : 'CATALOG_FILE=acme.json npm run sandbox';
    const sandbox = shell(t, folder, line, { PORT: String(await freePort()) });
    await sandbox.printed(READY);
    const { baseUrl } = await readSandbox(folder);
    const offered = (await (await fetch(`${baseUrl}/tts/models`)).json()) as TtsModelsResponse;
    t.strictSame(
      offered.models.map(({ id }) => id),
      models,
    );
    for (const printed of printedCommands(await readFile(join(folder, 'data', 'try.txt'), 'utf8'))) {
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
  await cp(join(PROJECT, 'dist'), join(folder, 'dist'), { recursive: true });
  return folder;
}
