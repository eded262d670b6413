/** What `npm pack` makes is installed into an empty folder, and used there as those who pay would. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { cp, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { type Test, test } from 'tap';
import { freePort } from '../../src/sandbox/free-port.ts';
import { detectAudioType } from '../../src/speech/audio-format.ts';
import { type Child, startCommand } from '../../test/support/child.ts';
import { openBrowser, withoutChromium } from '../../test/support/chromium.ts';
import { blocksOf } from '../../test/support/documentation.ts';
import { CLIENT, installClient, installPackage } from '../../test/support/installed-package.ts';
import { projectFile } from '../../test/support/project.ts';
import { sandboxFolder } from '../../test/support/sandbox-folder.ts';
import { installNode } from './install-node.ts';

const READ = `
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { cardCredits, OverCapError, prepaid, Speechgate } from 'speechgate/client';
import { createWalletClient, custom } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
const read = async (name) => JSON.parse(await readFile('data/' + name + '.json', 'utf8'));
const { baseUrl, creditAccount, wallet: demo } = await read('sandbox');
const trust = await read('trust');`;

/** What stands around a block of docs/clients.md that is no program by itself, by what it begins with. */
const AROUND: Readonly<Record<string, readonly [before: string, after: string]>> = {
  'import { openFileBudget }': [
    'const pay = cardCredits(creditAccount);',
    `
await (await client.speak({ text: 'Hello' })).bytes();
assert.equal((await budget.read()).spentMicroUsd, 90n);
await assert.rejects(client.speak({ text: 'a'.repeat(600) }), OverCapError);`,
  ],
  'const [address] =': [
    `
const account = privateKeyToAccount(demo.privateKey);
const request = async ({ method, params }) =>
  method === 'eth_requestAccounts' ? [account.address] : account.signTypedData(JSON.parse(params[1]));
const walletClient = createWalletClient({ transport: custom({ request }) });`,
    `
const client = new Speechgate({ baseUrl, trust, pay: prepaid(wallet) });
assert.equal((await client.speak({ text: 'Hello' })).receipt.chargedMicroUsd, 90n);`,
  ],
};

/** Programs of the blocks of docs/clients.md that quote no example. */
async function documentedPrograms(): Promise<string[]> {
  const blocks = (await blocksOf('docs/clients.md')).map(({ code }) => code);
  return Object.entries(AROUND).map(([beginning, [before, after]]) => {
    const code = blocks.find((block) => block.startsWith(beginning)) ?? assert.fail(`no block has ${beginning}`);
    return [READ, before, code, after].join('\n');
  });
}

const EXAMPLES = fileURLToPath(projectFile('examples'));
const CALLER = 'strict-caller.mts';
const TSC = createRequire(import.meta.url).resolve('typescript/bin/tsc');
const SPEECHGATE = 'node_modules/.bin/speechgate';
const PACKAGE = 'node_modules/speechgate';
const MAX_LINES = 10;

/** What lies at the top of the package. */
const CONTENT = [
  ...[
    'CHANGELOG.md',
    'LICENSE',
    'NOTICE',
    'README.md',
    'SECURITY.md',
    'npm-shrinkwrap.json',
    'package.json',
    'openapi.yaml',
  ],
  ...['codegen', 'db', 'dist', 'docs', 'examples', 'ops'],
];

/** How TypeScript is told to find packages: as Node.js does, and as bundlers do. */
const RESOLUTIONS = [
  ['--module', 'node16', '--moduleResolution', 'node16'],
  ['--module', 'esnext', '--moduleResolution', 'bundler'],
];
const STRICT = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--skipLibCheck', '--target', 'es2022'];

/** Runs a program where the package is installed. */
type Run = (args: readonly string[], env?: Record<string, string>) => Child;

test('the package works when installed into an empty folder', async (t) => {
  const folder = await installPackage(t);
  const run: Run = (args, env = {}) => startCommand(t, [process.execPath, ...args], { cwd: folder, env });
  const own = { SPEECHGATE_CONFIG_DIR: join(folder, 'settings') };

  await t.test('the package holds what users need, without source or tests', async (t) => {
    const found = await readdir(join(folder, PACKAGE), { recursive: true });
    t.strictSame(found.filter((path) => !/[\\/]/.test(path)).sort(), CONTENT.sort());
    const unneeded = /(?<!\.d)\.m?ts$|\.test\.|\.map$|\.tgz$/;
    t.strictSame(
      found.filter((path) => unneeded.test(path)),
      [],
    );
    t.strictSame(await brokenImports(join(folder, PACKAGE, 'dist')), []);
  });

  await t.test('a strict TypeScript program compiles, and misuse does not', async () => {
    await cp(projectFile(`lab/drills/${CALLER}`), join(folder, CALLER));
    for (const resolution of RESOLUTIONS) await succeeds(run([TSC, ...STRICT, ...resolution, CALLER]));
  });

  const sandbox = await startSandbox(t, folder, run);
  await cp(EXAMPLES, join(folder, 'examples'), { recursive: true });
  await buysByEachFlow(t, folder, run);

  await t.test('the package for callers does the same without the service', async (t) => {
    const caller = await installCaller(t, join(folder, 'data'));
    await buysByEachFlow(t, caller, (args, env = {}) =>
      startCommand(t, [process.execPath, ...args], { cwd: caller, env }),
    );
    await buysInEveryWay(t, caller);
  });

  await t.test('docs/clients.md: its command works as the sandbox writes it', async () => {
    const [code = ''] = (await blocksOf('docs/clients.md')).flatMap(({ language, code }) =>
      language === 'sh' ? code : [],
    );
    const more = await readFile(join(folder, 'data', 'try.txt'), 'utf8');
    const printed = [...more.matchAll(/^ {2}(npx --no -- speechgate .+)$/gm)].map(([, command = '']) => command);
    assert.deepEqual(
      printed.map((command) => command.replace(/(?<=--sandbox) .+/, '')),
      code.split('\n'),
    );
    assert.doesNotMatch(more, /npm run/, 'the package has no scripts to run');
    const commands = code.replaceAll('npx --no -- ', 'node_modules/.bin/');
    await succeeds(startCommand(t, ['sh', '-euc', commands], { cwd: folder, env: own }));
    await isSpeech(join(folder, 'hello.mp3'));
  });
  await t.test('examples/openai.mjs speaks through the bridge', async (t) => {
    const bridge = run([SPEECHGATE, 'bridge', '--port', '0'], own);
    const [, url = '', key = ''] = await bridge.printed(/^export OPENAI_BASE_URL=(\S+)\nexport OPENAI_API_KEY=(\S+)$/m);
    const env = { OPENAI_BASE_URL: url, OPENAI_API_KEY: key };
    t.match(await succeeds(run(['examples/openai.mjs'], env)), /^openai\.mp3 0\.00[1-9]/);
    await isSpeech(join(folder, 'openai.mp3'));
    t.equal(await bridge.stop('SIGINT'), 0, bridge.output());
  });
  await t.test('examples/mcp-agent.mjs speaks through the client of the official SDK', async (t) => {
    const told = await succeeds(run(['examples/mcp-agent.mjs'], own));
    t.match(told, /^list_voices quote speak balance$/m);
    const [, file = ''] = /^The speech is in (\S+\.mp3) /m.exec(told) ?? assert.fail(told);
    await isSpeech(file);
  });
  await t.test('docs/clients.md: its other programs run', async () => {
    for (const program of await documentedPrograms()) {
      await succeeds(run(['--input-type=module', '--eval', program]));
    }
  });
  t.equal(await sandbox.stop('SIGINT'), 0, sandbox.output());
});

/** The examples with the import of the small package, beside the data of a running sandbox. */
async function installCaller(t: Test, data: string): Promise<string> {
  const folder = await installClient(t);
  await symlink(data, join(folder, 'data'));
  for (const name of ['viem', 'esbuild']) {
    await symlink(fileURLToPath(projectFile(`node_modules/${name}`)), join(folder, 'node_modules', name));
  }
  await cp(EXAMPLES, join(folder, 'examples'), { recursive: true });
  for (const program of ['card.mjs', 'direct.mjs', 'prepaid.mjs', 'browser/page.js']) {
    const path = join(folder, 'examples', program);
    const code = await readFile(path, 'utf8');
    const entry = program === 'card.mjs' ? CLIENT : `${CLIENT}/x402`;
    assert.ok(code.includes("'speechgate/client'"), program);
    await writeFile(path, code.replace("'speechgate/client'", `'${entry}'`));
  }
  return folder;
}

/** What `every-flow.mjs` prints. */
const BOUGHT = [
  ...[
    'small: card',
    'small job: card',
    'card: card',
    'job: card',
    'direct: direct',
    'quoted: direct',
    'prepaid: prepaid',
  ].map((way) => `${way}, 198 micro-USD, audio`),
  'deposit: 100000 micro-USD',
];

/** On two releases of Node.js, and in a page of another origin than the service. */
async function buysInEveryWay(t: Test, caller: string): Promise<void> {
  const readJson = async (name: string) => JSON.parse(await readFile(join(caller, 'data', name), 'utf8'));
  const settings = { ...(await readJson('sandbox.json')), trust: await readJson('trust.json') };
  await writeFile(join(caller, 'settings.mjs'), `globalThis.settings = ${JSON.stringify(settings)};`);
  await cp(projectFile('lab/drills/every-flow.mjs'), join(caller, 'every-flow.mjs'));
  const hasBoughtAll = (output: string) => {
    for (const line of BOUGHT) assert.ok(output.split('\n').includes(line), `${line}\n${output}`);
  };

  for (const node of [process.execPath, await installNode(t, 24)]) {
    const command = [node, '--import', './settings.mjs', 'every-flow.mjs'];
    hasBoughtAll(await succeeds(startCommand(t, command, { cwd: caller })));
  }
  if (withoutChromium) return;
  const { outputFiles } = await build({
    stdin: { contents: "import './settings.mjs'; import './every-flow.mjs';", resolveDir: caller },
    bundle: true,
    format: 'esm',
    write: false,
  });
  const { text = '' } = outputFiles[0] ?? {};
  const server = createServer((_, response) =>
    response.setHeader('content-type', 'text/html').end(`<!doctype html><script type="module">${text}</script>`),
  );
  t.teardown(() => server.close());
  const port = await freePort();
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const page = await (await openBrowser(t)).newPage();
  const printed: string[] = [];
  page.on('console', (message) => printed.push(message.text()));
  page.on('pageerror', (error) => printed.push(String(error)));
  const ended = page.waitForEvent('console', (message) => message.text() === 'done');
  await page.goto(`http://127.0.0.1:${port}`);
  await ended.catch((error) => assert.fail(`${error}\n${printed.join('\n')}`));
  hasBoughtAll(printed.join('\n'));
}

async function buysByEachFlow(t: Test, folder: string, run: Run): Promise<void> {
  for (const flow of ['card', 'direct', 'prepaid']) {
    await t.test(`examples/${flow}.mjs buys speech in ${MAX_LINES} lines`, async (t) => {
      const program = `examples/${flow}.mjs`;
      const lines = (await readFile(join(folder, program), 'utf8')).split('\n').filter(Boolean);
      t.ok(lines.length <= MAX_LINES, `${lines.length} lines`);
      const receipt = new RegExp(`flow: '${flow}',\\s+chargedMicroUsd: [1-9]\\d*n`);
      t.match(await succeeds(run([program])), receipt);
      await isSpeech(join(folder, `${flow}.mp3`));
    });
  }
  await t.test('examples/browser buys speech from a page of another origin', { skip: withoutChromium }, (t) =>
    buyInBrowser(t, run),
  );
}

async function succeeds(child: Child): Promise<string> {
  assert.equal(await child.ended(), 0, child.output());
  return child.output();
}

/** The sandbox of the installed package; programs in the folder find it in `data`. */
async function startSandbox(t: Test, folder: string, run: Run): Promise<Child> {
  const dataDir = await sandboxFolder(t);
  await symlink(dataDir, join(folder, 'data'));
  const sandbox = run([SPEECHGATE, 'sandbox'], { DATA_DIR: dataDir, PORT: String(await freePort()) });
  await sandbox.printed(/Ctrl-C stops the sandbox/);
  return sandbox;
}

async function isSpeech(file: string): Promise<void> {
  const audio = await readFile(file);
  assert.equal(detectAudioType(audio), 'audio/mpeg');
  assert.ok(audio.length > 4000, `${audio.length} bytes`);
}

async function buyInBrowser(t: Test, run: Run): Promise<void> {
  const server = run(['examples/browser/serve.mjs'], { PORT: '0' });
  const [url] = await server.printed(/http:\/\/127\.0\.0\.1:\d+/);
  const page = await (await openBrowser(t)).newPage();
  const complaints: string[] = [];
  page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  await page.goto(url);
  for (const flow of ['card', 'prepaid']) {
    await page.locator(`#${flow}`).click();
    const told = page.locator('output', { hasText: /USD|Error/ });
    assert.match(await told.innerText(), new RegExp(`^${flow}: 0\\.\\d{6} USD, \\d+\\.\\d{6} left$`));
    const length = page.waitForFunction("document.querySelector('audio').duration || false");
    assert.ok(Number(await (await length).jsonValue()) > 1, 'the browser can play it');
  }
  assert.deepEqual(complaints, []);
  await server.stop();
}

/** Relative imports of compiled files and declarations whose file is missing. */
async function brokenImports(dist: string): Promise<string[]> {
  const broken: string[] = [];
  for (const file of (await readdir(dist, { recursive: true })).filter((name) => /\.(js|d\.ts)$/.test(name))) {
    const code = await readFile(join(dist, file), 'utf8');
    for (const [, path = ''] of code.matchAll(/(?:\bfrom |\bimport\(|^import )'(\.{1,2}\/[^']+)'/gm)) {
      // A declaration names the source file, whose declarations are meant.
      const target = path.replace(/(?<!\.d)\.ts$/, '.d.ts');
      if (!existsSync(join(dist, dirname(file), target))) broken.push(`${file}: ${path}`);
    }
  }
  return broken;
}
