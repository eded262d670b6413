import assert from 'node:assert/strict';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { test } from 'tap';
import { parse } from 'yaml';
import { detectAudioType } from '../../src/speech/audio-format.ts';
import { startCommand } from '../support/child.ts';
import { startCardGateway } from '../support/client.ts';
import { blocksOf } from '../support/documentation.ts';
import { CLIENT, installClient } from '../support/installed-package.ts';
import { projectFile } from '../support/project.ts';
import { copyProject } from '../support/project-copy.ts';

const MAX_INSTALLED_BYTES = 5_000_000;
/** What a page that pays by card adds, minified, and what of it is downloaded. */
const MAX_CARD_BYTES = 15_000;
const MAX_CARD_DOWNLOAD_BYTES = 7_000;
const TSC = fileURLToPath(projectFile('node_modules/typescript-7/bin/tsc'));
const STRICT = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--skipLibCheck', 'false', '--types', ''];
/** How TypeScript is told to find packages: as Node.js does, and as bundlers do. */
const RESOLUTIONS = [
  ['--module', 'nodenext'],
  ['--module', 'esnext', '--moduleResolution', 'bundler'],
];

const CALLER = `
import { cardCredits, OverCapError, type PendingPurchase, Speechgate } from '${CLIENT}';
import * as x402 from '${CLIENT}/x402';

const baseUrl = 'https://speech.example';
const wallet: x402.Wallet = { address: '0x00', signTypedData: async ({ domain }) => domain.verifyingContract };
const card = new Speechgate({ baseUrl, pay: cardCredits('id'), maxTotalMicroUsd: 1_000n, fetch });
export const others: x402.Speechgate[] = [
  new x402.Speechgate({ baseUrl, pay: x402.prepaid(wallet), trust: [] }),
  new x402.Speechgate({ baseUrl, pay: x402.directX402(wallet, { quoteFirst: true }) }),
  new x402.Speechgate({ baseUrl, pay: x402.cardCredits('id') }),
];
export async function speak(resume?: PendingPurchase): Promise<bigint> {
  try {
    const { audio, receipt } = await (resume ? card.resume(resume) : card.speak({ text: 'Hello', speed: 1.5 }));
    return audio.locked ? 0n : receipt.chargedMicroUsd;
  } catch (error) {
    if (error instanceof OverCapError) return error.leftMicroUsd;
    throw error;
  }
}
// @ts-expect-error: pinned keys are for wallets.
new Speechgate({ baseUrl, trust: [] });
// @ts-expect-error: the small client pays by card only.
new Speechgate({ baseUrl, pay: x402.prepaid(wallet) });
// @ts-expect-error: amounts are bigints.
card.speak({ text: 'Hello' }, { maxMicroUsd: 1 });
`;

test('the package for callers', async (t) => {
  const folder = await installClient(t);
  const run = (args: readonly string[], env = {}) => startCommand(t, [process.execPath, ...args], { cwd: folder, env });

  await t.test('it is installed with openapi-fetch alone, far below 5 MB', async () => {
    const files = await readdir(join(folder, 'node_modules'), { recursive: true, withFileTypes: true });
    const sizes = files.map(async (file) => (file.isFile() ? (await stat(join(file.parentPath, file.name))).size : 0));
    const bytes = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
    t.comment(`installed: ${bytes} bytes`);
    assert.ok(bytes < MAX_INSTALLED_BYTES, `${bytes} bytes`);
    const packages = await readdir(join(folder, 'node_modules'));
    assert.deepEqual(packages.filter((name) => !name.startsWith('.')).sort(), [
      dirname(CLIENT),
      'openapi-fetch',
      'openapi-typescript-helpers',
    ]);
  });

  await t.test('its types compile in a strict program without types of other packages', async (t) => {
    await writeFile(join(folder, 'caller.mts'), CALLER);
    for (const resolution of RESOLUTIONS) {
      const compiled = run([TSC, ...STRICT, '--target', 'es2022', '--lib', 'es2022,dom', ...resolution, 'caller.mts']);
      t.equal(await compiled.ended(), 0, compiled.output());
    }
  });

  await t.test('a page that pays by card downloads little, and nothing of wallets', async () => {
    const contents = `import { cardCredits, Speechgate } from '${CLIENT}';
      new Speechgate({ baseUrl: location.origin, pay: cardCredits('id') }).speak({ text: 'Hello' }).then(console.log);`;
    const { outputFiles } = await build({
      stdin: { contents, resolveDir: folder },
      bundle: true,
      minify: true,
      format: 'esm',
      write: false,
    });
    const [{ contents: page, text }] = outputFiles as [(typeof outputFiles)[number]];
    const download = gzipSync(page).length;
    t.comment(`bundle: ${page.length} bytes, ${download} compressed`);
    assert.ok(page.length < MAX_CARD_BYTES, `${page.length} bytes`);
    assert.ok(download < MAX_CARD_DOWNLOAD_BYTES, `${download} bytes compressed`);
    assert.deepEqual(text.match(/signTypedData|viem|\bBuffer\b|\bnode:/g), null);
  });

  await t.test('client/README.md: its first program buys speech by card', async () => {
    const gateway = await startCardGateway(t);
    const program = (await blocksOf('client/README.md')).find(({ language }) => language === 'js')?.code ?? '';
    const env = { SPEECHGATE_URL: gateway.config.baseUrl, SPEECHGATE_ACCOUNT: await gateway.fund(500) };
    const ran = run(['--input-type=module', '--eval', program], env);
    assert.equal(await ran.ended(), 0, ran.output());
    assert.match(ran.output(), /flow: 'card',\s+chargedMicroUsd: [1-9]\d*n/);
    assert.equal(detectAudioType(await readFile(join(folder, 'hello.mp3'))), 'audio/mpeg');
  });

  await t.test('a tag publishes both packages with the repository that npm compares', async (t) => {
    const { jobs } = parse(await readFile(projectFile('.github/workflows/publish.yml'), 'utf8'));
    const { permissions, steps } = jobs.publish as { permissions: object; steps: Record<string, string>[] };
    t.strictSame(permissions, { contents: 'read', 'id-token': 'write' });
    const published = steps.filter(({ run = '' }) => run.startsWith('npm publish --provenance'));
    const told = published.map((step) => step['working-directory']);
    t.strictSame(told, [undefined, 'client']);
    const copy = await copyProject(t);
    const env = {
      GITHUB_SERVER_URL: 'https://github.com',
      GITHUB_REPOSITORY: 'acme/speech',
      GITHUB_REF_NAME: `v${JSON.parse(await readFile(join(copy, 'package.json'), 'utf8')).version}`,
    };
    for (const { name, run = '' } of steps) {
      if (name === undefined) continue;
      const step = startCommand(t, ['bash', '-euc', run], { cwd: copy, env });
      t.equal(await step.ended(), 0, step.output());
    }
    for (const [folder, directory] of [['.'], ['client', { directory: 'client' }]] as const) {
      const manifest = JSON.parse(await readFile(join(copy, folder, 'package.json'), 'utf8'));
      const url = 'git+https://github.com/acme/speech.git';
      t.strictSame([manifest.repository, manifest.private], [{ type: 'git', url, ...directory }, undefined]);
    }
  });

  await t.test('its name stands in its package.json, and its version is that of the service', async (t) => {
    const read = async (path: string) => JSON.parse(await readFile(projectFile(path), 'utf8'));
    t.equal((await read('client/package.json')).version, (await read('package.json')).version);
    const readme = await readFile(projectFile('client/README.md'), 'utf8');
    t.strictSame([...new Set(readme.match(/@[\w-]+\/[\w-]+/g))], [CLIENT]);
  });
});
