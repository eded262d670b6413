/** Every command with every option that it declares, once: none may end by a defect. */
import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { startPrepaidCaller } from '../support/caller.ts';
import { startChild } from '../support/child.ts';

const CLI = fileURLToPath(new URL('../../src/cli', import.meta.url));
const OPTION = /^.*?'?([a-z-]+)'?: \{ type: '(string|boolean)'/;
const DEFECT = /INTERNAL|(Reference|Type|Range|Syntax)Error|before initialization|\.[jt]s:\d+:\d+/;
const ID = '3b241101-e2bb-4255-8caf-4136c566a962';

/** The words that a command takes, and the files that declare its options. */
const COMMANDS: Readonly<Record<string, readonly [words: readonly string[], ...files: string[]]>> = {
  connect: [['URL'], 'caller/connect-command.ts'],
  setup: [['URL'], 'caller/connect-command.ts'],
  say: [['Hi', '--out', 'OUT'], 'caller/say-command.ts', 'caller/speech-options.ts'],
  voices: [[], 'caller/voices-command.ts'],
  models: [[], 'caller/command.ts'],
  quote: [['Hi'], 'caller/speech-options.ts'],
  'top-up': [['--no-wait'], 'caller/top-up-command.ts'],
  deposit: [['0.10'], 'caller/command.ts'],
  balance: [[], 'caller/balance-command.ts'],
  budget: [[], 'caller/command.ts'],
  resume: [[], 'caller/resume-command.ts'],
  'verify-metadata': [[], 'caller/command.ts'],
  bridge: [['--port', '0'], 'caller/bridge-command.ts'],
  mcp: [['--folder', 'FOLDER'], 'caller/mcp-command.ts'],
  'feedback send': [['Hi'], 'caller/feedback-command.ts'],
  sandbox: [['--help'], 'sandbox-command.ts'],
  doctor: [[], 'doctor-command.ts'],
  audit: [[], 'audit-command.ts'],
  reconcile: [[], 'reconcile-options.ts'],
  trace: [[ID], 'trace-command.ts'],
  report: [[], 'report-command.ts'],
  payments: [[], 'payments-command.ts'],
  paused: [[], 'paused-command.ts'],
  feedback: [[], 'feedback-command.ts'],
  keys: [[], 'keys-command.ts'],
  pause: [['card', '--operator', 'Test', '--reason', 'test'], 'flow-change.ts', 'deed.ts'],
  'resume card': [['--operator', 'Test', '--reason', 'test'], 'flow-change.ts', 'deed.ts'],
  'accounts show': [[ID], 'deed.ts'],
  'accounts find': [['nobody'], 'deed.ts'],
  'accounts freeze': [[ID, '--operator', 'Test', '--reason', 'test'], 'deed.ts'],
  'accounts unfreeze': [[ID, '--operator', 'Test', '--reason', 'test'], 'deed.ts'],
  'accounts adjust': [[ID, '1', '--operator', 'Test', '--reason', 'test'], 'deed.ts'],
  'accounts refund': [['cs_test_none', '--operator', 'Test', '--reason', 'test'], 'deed.ts'],
};

/** What an option is given, where not anything will do. */
const VALUES: Readonly<Record<string, string>> = {
  ...{ out: 'OUT', folder: 'FOLDER', 'token-file': 'TOKEN', 'verify-seal': 'TOKEN', trust: 'TOKEN', wallet: 'create' },
  ...{ pay: 'prepaid', model: 'provider-a/tts-1', voice: 'provider-a_alloy', speed: '1.5', port: '0' },
  ...{ max: '1', 'max-per-call': '1', 'max-per-day': '1', 'max-total': '1', amount: '5' },
  ...{ category: 'bug', from: '2026-01-01', to: '2026-01-02', by: 'day', since: '1h', skip: 'database' },
};

async function optionsOf(file: string): Promise<[name: string, type: string][]> {
  const lines = (await readFile(join(CLI, file), 'utf8')).split('\n');
  return lines.flatMap((line) => {
    const found = [...line.matchAll(/'?([a-z-]+)'?: \{ type: '(string|boolean)'/g)];
    return found.map(([, name = '', type = '']) => [name, type] as [string, string]);
  });
}

test('the table has every file that declares options', async () => {
  const known = new Set([...Object.values(COMMANDS).flatMap(([, ...files]) => files), 'caller/command.ts']);
  for (const folder of ['', 'caller/']) {
    for (const name of await readdir(join(CLI, folder))) {
      if (!name.endsWith('.ts') || known.has(folder + name)) continue;
      const text = await readFile(join(CLI, folder, name), 'utf8');
      assert.doesNotMatch(text, OPTION, `${folder}${name} declares options`);
    }
  }
});

test('no command ends by a defect, whichever option it is given', async (t) => {
  const { gateway, env: callerEnv } = await startPrepaidCaller(t, 1_000_000n);
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-options-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, 'token'), 'a token\n');
  const env = { ...callerEnv, DATABASE_URL: gateway.databaseUrl, DATA_DIR: folder, BASE_URL: gateway.url };
  const places: Readonly<Record<string, string>> = {
    ...{ URL: gateway.url, OUT: join(folder, 'hi.mp3'), FOLDER: folder, TOKEN: join(folder, 'token') },
  };
  for (const [command, [words, ...files]] of Object.entries(COMMANDS)) {
    const declared = (await Promise.all(files.map(optionsOf))).flat();
    const isCaller = files.some((file) => file.startsWith('caller/'));
    const options = isCaller ? [...declared, ['json', 'boolean'], ['help', 'boolean']] : declared;
    const calls = [
      [],
      ...options.map(([name = '', type]) => (type === 'string' ? [`--${name}`, VALUES[name] ?? 'x'] : [`--${name}`])),
    ];
    await t.test(command, async () => {
      for (const call of calls) {
        const args = [...command.split(' '), ...words, ...call].map((word) => places[word] ?? word);
        const output = await run(args, command === 'bridge');
        assert.doesNotMatch(output, DEFECT, args.join(' '));
      }
    });
  }

  /** What it prints until it listens, or ends by itself. */
  async function run(args: readonly string[], isServer: boolean): Promise<string> {
    const child = startChild(t, 'src/cli/speechgate.ts', env, [...args]);
    if (isServer)
      await child
        .printed(/OPENAI_BASE_URL=|"url":/, 60_000)
        .then(() => child.stop())
        .catch(() => {});
    await child.ended();
    return child.output();
  }
});
