/** Every command with every option that its help names: none may end by a defect. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'tap';
import { startPrepaidCaller } from '../../test/support/caller.ts';
import { startChild } from '../../test/support/child.ts';
import { speechgate } from '../../test/support/speechgate.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';

const DEFECT = /INTERNAL|(Reference|Type|Range|Syntax)Error|before initialization|\.[jt]s:\d+:\d+/;
const LISTENS = /OPENAI_BASE_URL=|"url":|The voice server listens/;
const ID = '3b241101-e2bb-4255-8caf-4136c566a962';
const BY_OPERATOR = ['--operator', 'Test', '--reason', 'test'];

/** The words that a command takes. */
const COMMANDS: Readonly<Record<string, readonly string[]>> = {
  ...{ connect: ['URL'], setup: ['URL'], say: ['Hi', '--out', 'OUT'], voices: [], models: [], quote: ['Hi'] },
  ...{
    'top-up': ['--no-wait'],
    deposit: ['0.10'],
    balance: [],
    account: [],
    budget: [],
    resume: [],
    'verify-metadata': [],
  },
  ...{ bridge: ['--port', '0'], mcp: ['--folder', 'FOLDER'], 'feedback send': ['Hi'] },
  ...{ sandbox: ['--help'], voice: ['--port', '0'] },
  ...{ 'admin doctor': [], 'admin audit': [], 'admin reconcile': [], 'admin trace': [ID], 'admin report': [] },
  ...{ 'admin payments': [], 'admin paused': [], 'admin feedback': [], 'admin keys': [], 'admin samples': [] },
  ...{ 'admin migrate': [], 'admin pause': ['card', ...BY_OPERATOR], 'admin resume': ['card', ...BY_OPERATOR] },
  ...{ 'admin accounts show': [ID], 'admin accounts find': [], 'admin accounts list': [] },
  ...{ 'admin accounts export': [ID], 'admin accounts erase': [ID, ...BY_OPERATOR] },
  ...{ 'admin accounts freeze': [ID, ...BY_OPERATOR], 'admin accounts unfreeze': [ID, ...BY_OPERATOR] },
  ...{ 'admin accounts adjust': [ID, '1', ...BY_OPERATOR] },
  'admin accounts refund': ['cs_test_none', ...BY_OPERATOR],
};

/** What an option is given, where not anything will do. */
const VALUES: Readonly<Record<string, string>> = {
  ...{ out: 'OUT', folder: 'FOLDER', 'token-file': 'TOKEN', 'verify-seal': 'TOKEN', trust: 'TOKEN', wallet: 'create' },
  ...{ pay: 'prepaid', model: 'provider-a/tts-1', voice: 'provider-a_alloy', speed: '1.5', port: '0' },
  ...{ max: '1', 'max-per-call': '1', 'max-per-day': '1', 'max-total': '1', amount: '5' },
  ...{ category: 'bug', from: '2026-01-01', to: '2026-01-02', by: 'day', since: '1h', skip: 'database' },
};

/** Each option of a command with its value, from the left column of its help. */
async function optionsOf(command: string): Promise<string[][]> {
  const { out } = await speechgate({}, ...command.split(' '), '--help');
  const columns = out.split('\n').map((line) => line.trim().split(/ {2,}/)[0] ?? '');
  const named = columns.filter((column) => column.startsWith('--')).flatMap((column) => column.split(', '));
  return named.map((option) => {
    const [name = '', value] = option.split(' ');
    return value === undefined ? [name] : [name, VALUES[name.slice(2)] ?? 'x'];
  });
}

test('the table includes every command', async (t) => {
  const listed = async (...words: string[]) => {
    const [out = ''] = (await speechgate({}, ...words, '--help')).out.split('For operators: speechgate admin');
    return [...out.matchAll(/^ {2}([a-z-]+) /gm)].map(([, name]) => [...words, name].join(' '));
  };
  const names = [...(await listed()), ...(await listed('admin'))];
  t.ok(names.length > 25);
  for (const name of names) {
    const isKnown = Object.keys(COMMANDS).some((command) => `${command} `.startsWith(`${name} `));
    t.ok(isKnown, name);
  }
});

test('no option makes a command crash', async (t) => {
  const { gateway, env: callerEnv } = await startPrepaidCaller(t, 1_000_000n);
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, 'token'), 'a token\n');
  const env = { ...callerEnv, DATABASE_URL: gateway.databaseUrl, DATA_DIR: folder, BASE_URL: gateway.url };
  const places: Readonly<Record<string, string>> = {
    ...{ URL: gateway.url, OUT: join(folder, 'hi.mp3'), FOLDER: folder, TOKEN: join(folder, 'token') },
  };
  for (const [command, words] of Object.entries(COMMANDS)) {
    await t.test(command, async (t) => {
      for (const option of [[], ...(await optionsOf(command))]) {
        const args = [...command.split(' '), ...words, ...option].map((word) => places[word] ?? word);
        const child = startChild(t, 'src/speechgate.ts', env, args);
        if (command === 'bridge' || command === 'voice')
          await child.printed(LISTENS).then(
            () => child.stop(),
            () => {},
          );
        await child.ended();
        t.notMatch(child.output(), DEFECT, args.join(' '));
      }
    });
  }
});
