import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'tap';
import { ATTACKS } from '../../lab/attacks/attacks.ts';
import { type Config, readConfig } from '../../src/config/config.ts';
import { SECRETS } from '../../src/config/settings-reader.ts';
import { MAX_TEXT_LENGTH } from '../../src/config/speech-limits.ts';
import { LOCK_TIMEOUT_MS } from '../../src/db/brief-locks.ts';
import { MAX_EXPIRY_SECONDS } from '../../src/ledger/wallet-holds.ts';
import { PREPAID_AUDIO_SECONDS } from '../../src/payments/prepaid/prepaid-balance.ts';
import { PREPAID } from '../../src/payments/x402/prepaid-terms.ts';
import { RANGE_BLOCKS } from '../../src/payments/x402/rpc.ts';
import { projectFile } from '../support/project.ts';

const PROJECT = projectFile('');
const read = (path: string): Promise<string> => readFile(new URL(path, PROJECT), 'utf8');
const settingsTable = async (): Promise<string> => {
  const [, section = ''] = /^## Settings\n(.*?)^## /ms.exec(await read('docs/operate.md')) ?? [];
  return section;
};
const [, ranked = ''] = /^const LAYERS = (\[.*?^\]);$/ms.exec(await read('.dependency-cruiser.cjs')) ?? [];

const namesIn = async (folder: string): Promise<string[]> =>
  (await readdir(new URL(folder, PROJECT), { recursive: folder !== '' }))
    .filter((name) => name.endsWith('.md') && !name.includes('node_modules'))
    .map((name) => `${folder}${name.replaceAll('\\', '/')}`);
const documents = (await Promise.all(['', 'client/', 'docs/', 'examples/catalogs/', 'lab/'].map(namesIn))).flat();

/** As GitHub makes them of headings. */
const anchorsIn = (text: string): Set<string> =>
  new Set(
    [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
      heading
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );

for (const document of documents) {
  test(`${document}: its scripts, files and links exist`, async (t) => {
    const text = await read(document);
    const { scripts } = JSON.parse(await read('package.json'));
    const named = [...text.matchAll(/npm run (?:-s |--silent )?([\w:]*\w)/g)].map(([, name]) => name as string);
    for (const name of named) t.ok(name in scripts, name);
    const files = text.match(/(?<![\w/])(?:src|test|docs|db|codegen|\.ci|lab|ops|examples)\/[\w/.-]*[\w/]/g) ?? [];
    for (const path of files) t.ok(existsSync(new URL(path, PROJECT)), path);
    for (const [link, path = '', anchor] of text.matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)/g)) {
      const target = new URL(path || document, path ? new URL(document, PROJECT) : PROJECT);
      t.ok(existsSync(target), link);
      if (anchor !== undefined) t.ok(anchorsIn(await readFile(target, 'utf8')).has(anchor), link);
    }
  });
}

test('docs/operate.md: its table lists exactly the settings that are read', async (t) => {
  const known = new Set<string>();
  readConfig(new Proxy({}, { get: (_env, name) => void known.add(String(name)), ownKeys: () => [] }));
  const table = await settingsTable();
  const listed = [...table.matchAll(/^\| (.+?) \|/gm)].flatMap(([, cell = '']) => [...cell.matchAll(/`(\w+)`/g)]);
  // The text below the table says that each secret may be in a file.
  for (const name of SECRETS) known.delete(`${name}_FILE`);
  t.match(await read('docs/operate.md'), /may be in a file that `NAME_FILE` names/);
  // Those that only commands read.
  known.add('DATABASE_APP_ROLE');
  known.add('SPEECHGATE_OPERATOR');
  t.strictSame(listed.map(([, name]) => name).sort(), [...known].sort());
});

// The numbers that the documents tell are those of the code, where each stands once.

const SECRET = 'a-secret-of-the-tests-of-32-bytes-or-more';
/** Every flow is on, so that each setting shows in the configuration. */
const ENV = {
  DATABASE_URL: 'postgres://db.example/speechgate',
  SPEECH_BASE_URL: 'https://speech.example/v1',
  STRIPE_SECRET_KEY: 'sk_test_documents',
  X402_PAY_TO: '0xcA11bde05977b3631167028862bE2a173976CA11',
  X402_FACILITATOR_URL: 'https://facilitator.example',
  X402_RPC_URL: 'https://node.example',
  QUOTE_SECRET: SECRET,
  FEEDBACK_SECRET: `${SECRET} for feedback`,
};
const configOf = (env: NodeJS.ProcessEnv): Config | undefined => {
  const result = readConfig({ ...ENV, ...env });
  return result.outcome === 'read' ? result.config : undefined;
};
const config = configOf({}) ?? assert.fail('the settings of this test are invalid');
const depositUsd = (microUsd: number): string => (microUsd / 1_000_000).toFixed(2).replace(/\.00$/, '');

/** A document, how a sentence of it goes, and what stands where the sentence has …, in turn. */
const SENTENCES: readonly [document: string, sentence: string, ...values: (number | string)[]][] = [
  [
    'docs/backups.md',
    'a deposit is … to … USD, and a direct payment is the price of a text of at most … characters',
    ...[PREPAID.minDepositMicroUsd, PREPAID.maxDepositMicroUsd].map(depositUsd),
    MAX_TEXT_LENGTH,
  ],
  ['docs/backups.md', 'until … s after it was signed', MAX_EXPIRY_SECONDS],
  ['docs/backups.md', 'in ranges of … blocks', String(RANGE_BLOCKS)],
  ['docs/operate.md', "doesn't get its lock within … ms", LOCK_TIMEOUT_MS],
  ['docs/scaling.md', 'prepaid answers for … minutes', PREPAID_AUDIO_SECONDS / 60],
];

for (const [document, sentence, ...values] of SENTENCES) {
  test(`${document}: ${sentence.slice(0, 60)}`, async (t) => {
    const text = (await read(document)).replaceAll(/\s+/g, ' ');
    const parts = sentence.split('…').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
    const [, ...told] = new RegExp(parts.join('([\\d.,]*\\d)')).exec(text) ?? [];
    t.strictSame(told, values.map(String));
  });
}

test('docs/operate.md: the default numbers in its table match the code', async (t) => {
  const table = await settingsTable();
  const rows = table.split('\n').map((line) => line.split('|').map((cell) => [...cell.matchAll(/`([^`]+)`/g)]));
  const defaults = rows.flatMap(([, names = [], , values = []]) =>
    names.length === values.length
      ? names.map(([, name], at) => [name as string, values[at]?.[1] as string] as const)
      : [],
  );
  const numbers = defaults.filter(([, value]) => /^\d+$/.test(value));
  t.ok(numbers.length >= 15);
  for (const [name, value] of numbers) {
    t.strictSame(configOf({ [name]: value }), config, name);
    t.strictNotSame(configOf({ [name]: String(Number(value) + 1) }), config, `${name} has no effect here`);
  }
});

// What docs/clients.md quotes of examples/, which test/installing runs, is what stands there.

test('docs/clients.md: its programs match those in examples/', async (t) => {
  const text = await read('docs/clients.md');
  const quoted: string[] = [];
  for (const { index, 1: code } of text.matchAll(/^```\w+\n(.*?)^```$/gms)) {
    const paragraph = text.slice(0, index).trimEnd().split('\n\n').at(-1) ?? '';
    const [, file] = /\(\.\.\/(examples\/[\w.-]+)\)/.exec(paragraph) ?? [];
    if (file === undefined) continue;
    t.equal(code, await read(file), file);
    quoted.push(file);
  }
  t.strictSame(
    quoted,
    ['card.mjs', 'openai.mjs', 'mcp.json'].map((name) => `examples/${name}`),
  );
});

// Nobody owns the name speechgate in the registry: nothing may tell people or programs to fetch and run it.

/** Runs what is not installed: all but `npx --no --`, which fails instead. */
const FETCHES = [
  /\b(?:npx|bunx|(?:npm|pnpm|yarn) (?:exec|x|dlx|create|init))\s+(?!--no -- )(?:-\S+\s+)*(?:--package[= ])?speechgate\b/g,
  /\b(?:npm|pnpm|yarn|bun) (?:i|install|add) (?:-\S+ )*(?:@speechgate\/|speechgate\b)/g,
  /\bnpx (?:-y|--yes)\b/g,
  /(["'])npx\1/g,
];

const fetches = (text: string): string[] => FETCHES.flatMap((pattern) => text.match(pattern) ?? []);

test('no file tells users to run the package from the registry', async (t) => {
  const files = execFileSync('git', ['ls-files', '-z'], { cwd: PROJECT, encoding: 'utf8' }).split('\0').filter(Boolean);
  t.ok(files.includes('README.md'));
  for (const file of files)
    t.strictSame(fetches(await readFile(new URL(file, PROJECT), 'utf8').catch(() => '')), [], file);
});

test('lab/attacks/README.md: its results cover each attack, with no failure of ours', async (t) => {
  const [, table = ''] = (await read('lab/attacks/README.md')).split('<!-- measured: begin -->');
  const rows = table.split('\n').filter((line) => /^\| (?!attack or fault|---|\*\*)/.test(line));
  const cells = rows.map((row) => row.slice(2, -2).split(' | '));
  const told = cells.map(([name]) => name);
  t.strictSame(
    told,
    ATTACKS.map(({ name }) => name),
  );
  for (const [name, ours] of cells) assert.equal(ours, '0 · 0 · 0 · 0 · 0 · 0', name);
});

test('docs/security.md: its totals match lab/attacks/README.md', async (t) => {
  const [, sums = ''] = /^\| \*\*all\*\* \| (.+) \|$/m.exec(await read('lab/attacks/README.md')) ?? [];
  const [, table = ''] = (await read('docs/security.md')).split('<!-- measured: begin -->');
  const rows = table.split('\n').filter((line) => /^\| (?!server|---)/.test(line));
  const told = rows.map((row) => row.slice(2, -2).replaceAll(',', '').split(' | ').slice(1).join(' · '));
  t.strictSame(told, sums.replaceAll('**', '').split(' | '));
});

// docs/architecture.md shows the folders of src as .dependency-cruiser.cjs ranks them.

const parts = [...ranked.matchAll(/'([\w/-]+)'/g)].map(([, name]) => name as string);
const nameOf = (path: string): string => path.replace(/^src\//, '').replace(/\.ts$|\/$/, '');

test('docs/architecture.md: its table lists the folders of src in layer order', async (t) => {
  const text = await read('docs/architecture.md');
  const rows = [...text.matchAll(/^\| `(src\/[\w/-]+(?:\.ts)?)` \| .+ \|$/gm)].map(([, path]) => path as string);
  t.strictSame(rows.map(nameOf), parts);
  for (const path of rows) t.ok(existsSync(new URL(path, PROJECT)), path);
  const names = (await readdir(new URL('src/', PROJECT))).map((name) => name.replace(/\.ts$/, ''));
  const others = names.filter((name) => !parts.some((part) => `${part}/`.startsWith(`${name}/`)));
  t.strictSame(others, []);
});
