/** Every command with every option that it declares: none may end by a defect. */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { startPrepaidCaller } from '../../test/support/caller.ts';
import { startChild } from '../../test/support/child.ts';
import { projectFile } from '../../test/support/project.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';

const SOURCE = fileURLToPath(projectFile('src'));
const OPTION = /'?([a-z-]+)'?: \{ type: '(string|boolean)'/g;
const DEFECT = /INTERNAL|(Reference|Type|Range|Syntax)Error|before initialization|\.[jt]s:\d+:\d+/;
const ID = '3b241101-e2bb-4255-8caf-4136c566a962';

/** The words that a command takes, and the files that declare its options. */
const COMMANDS: Readonly<Record<string, readonly [words: readonly string[], ...files: string[]]>> = {
  connect: [['URL'], 'callers/cli/connect-command.ts'],
  setup: [['URL'], 'callers/cli/connect-command.ts'],
  say: [['Hi', '--out', 'OUT'], 'callers/cli/say-command.ts', 'callers/cli/read-values.ts'],
  voices: [[], 'callers/cli/catalog-commands.ts'],
  models: [[], 'callers/cli/command.ts'],
  quote: [['Hi'], 'callers/cli/read-values.ts'],
  'top-up': [['--no-wait'], 'callers/cli/top-up-command.ts'],
  deposit: [['0.10'], 'callers/cli/command.ts'],
  balance: [[], 'callers/cli/balance-commands.ts'],
  budget: [[], 'callers/cli/command.ts'],
  resume: [[], 'callers/cli/resume-command.ts'],
  'verify-metadata': [[], 'callers/cli/command.ts'],
  bridge: [['--port', '0'], 'callers/cli/bridge-command.ts'],
  mcp: [['--folder', 'FOLDER'], 'callers/cli/mcp-command.ts'],
  'feedback send': [['Hi'], 'callers/cli/feedback-command.ts'],
  sandbox: [['--help'], 'sandbox/sandbox-command.ts'],
  voice: [['--port', '0'], 'sandbox/voice-command.ts'],
  doctor: [[], 'operators/cli/doctor-command.ts'],
  audit: [[], 'operators/cli/audit-command.ts'],
  reconcile: [[], 'operators/cli/reconcile-command.ts'],
  trace: [[ID], 'operators/cli/trace-command.ts'],
  report: [[], 'operators/cli/report-command.ts'],
  payments: [[], 'operators/cli/payments-command.ts'],
  paused: [[], 'operators/cli/pauses.ts'],
  'admin feedback': [[], 'operators/cli/feedback-command.ts'],
  keys: [[], 'operators/cli/keys-command.ts'],
  samples: [[], 'operators/cli/samples-command.ts'],
  pause: [
    ['card', '--operator', 'Test', '--reason', 'test'],
    'operators/cli/pauses.ts',
    'operators/cli/operator-options.ts',
  ],
  'admin resume card': [
    ['--operator', 'Test', '--reason', 'test'],
    'operators/cli/pauses.ts',
    'operators/cli/operator-options.ts',
  ],
  'accounts show': [[ID], 'operators/cli/accounts/show.ts'],
  'accounts find': [[], 'operators/cli/accounts/find.ts'],
  'accounts list': [[], 'operators/cli/accounts/list.ts'],
  'accounts export': [[ID], 'operators/cli/accounts/personal-data.ts'],
  'accounts erase': [[ID, '--operator', 'Test', '--reason', 'test'], 'operators/cli/operator-options.ts'],
  'accounts freeze': [[ID, '--operator', 'Test', '--reason', 'test'], 'operators/cli/operator-options.ts'],
  'accounts unfreeze': [[ID, '--operator', 'Test', '--reason', 'test'], 'operators/cli/operator-options.ts'],
  'accounts adjust': [[ID, '1', '--operator', 'Test', '--reason', 'test'], 'operators/cli/operator-options.ts'],
  'accounts refund': [
    ['cs_test_none', '--operator', 'Test', '--reason', 'test'],
    'operators/cli/accounts/refund.ts',
    'operators/cli/operator-options.ts',
  ],
};

/** Options that other files declare by a constant. */
const SHARED = ['lib/arguments.ts', 'callers/cli/output.ts'];

/** What an option is given, where not anything will do. */
const VALUES: Readonly<Record<string, string>> = {
  ...{ out: 'OUT', folder: 'FOLDER', 'token-file': 'TOKEN', 'verify-seal': 'TOKEN', trust: 'TOKEN', wallet: 'create' },
  ...{ pay: 'prepaid', model: 'provider-a/tts-1', voice: 'provider-a_alloy', speed: '1.5', port: '0' },
  ...{ max: '1', 'max-per-call': '1', 'max-per-day': '1', 'max-total': '1', amount: '5' },
  ...{ category: 'bug', from: '2026-01-01', to: '2026-01-02', by: 'day', since: '1h', skip: 'database' },
};

async function optionsOf(file: string): Promise<[name: string, type: string][]> {
  const text = await readFile(join(SOURCE, file), 'utf8');
  const found = [...text.matchAll(OPTION)];
  const declared = found.map(([, name = '', type = '']) => [name, type] as [string, string]);
  return text.includes('JSON_OPTION') ? [...declared, ['json', 'boolean']] : declared;
}

test('the table includes every file that declares options', async (t) => {
  const known = Object.values(COMMANDS).flatMap(([, ...files]) => files);
  const declaring: string[] = [];
  for (const name of await readdir(SOURCE, { recursive: true })) {
    if (/-command\.ts$|\/cli\/.*\.ts$/.test(name) && (await readFile(join(SOURCE, name), 'utf8')).match(OPTION))
      declaring.push(name);
  }
  t.strictSame(
    declaring.filter((name) => !known.includes(name) && !SHARED.includes(name)),
    [],
  );
});

test('no option makes a command crash', async (t) => {
  const { gateway, env: callerEnv } = await startPrepaidCaller(t, 1_000_000n);
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, 'token'), 'a token\n');
  const env = { ...callerEnv, DATABASE_URL: gateway.databaseUrl, DATA_DIR: folder, BASE_URL: gateway.url };
  const places: Readonly<Record<string, string>> = {
    ...{ URL: gateway.url, OUT: join(folder, 'hi.mp3'), FOLDER: folder, TOKEN: join(folder, 'token') },
  };
  const triedFiles = new Set<string>();
  const argumentsOf = ([name, type]: [string, string]) =>
    type === 'string' ? [`--${name}`, VALUES[name] ?? 'x'] : [`--${name}`];
  for (const [command, [words, ...files]] of Object.entries(COMMANDS)) {
    // Options that several commands share are tried one by one with the first of these, and at once with the others.
    const own = files.filter((file) => !triedFiles.has(file));
    const shared = files.filter((file) => triedFiles.has(file));
    for (const file of own) triedFiles.add(file);
    const declared = (await Promise.all(own.map(optionsOf))).flat();
    const atOnce = (await Promise.all(shared.map(optionsOf))).flat();
    const isCaller = files.some((file) => file.startsWith('callers/'));
    const options: [string, string][] = isCaller ? [...declared, ['help', 'boolean']] : declared;
    const calls = [[], ...options.map(argumentsOf), ...(atOnce.length > 0 ? [atOnce.flatMap(argumentsOf)] : [])];
    await t.test(command, async (t) => {
      for (const call of calls) {
        const args = [...command.split(' '), ...words, ...call].map((word) => places[word] ?? word);
        const output = await run(args, command === 'bridge' || command === 'voice');
        t.notMatch(output, DEFECT, args.join(' '));
      }
    });
  }

  /** What it prints until it listens, or ends by itself. */
  async function run(args: readonly string[], isServer: boolean): Promise<string> {
    const child = startChild(t, 'src/speechgate.ts', env, [...args]);
    if (isServer)
      await child
        .printed(/OPENAI_BASE_URL=|"url":|The voice server listens/, 60_000)
        .then(() => child.stop())
        .catch(() => {});
    await child.ended();
    return child.output();
  }
});
