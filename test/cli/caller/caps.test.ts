/** A cap that is misspelt, blank or of another type is an error, never no cap. */
import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { capsLine, readCaps } from '../../../src/cli/caller/caps.ts';
import { assertVariables } from '../../../src/cli/caller/known-names.ts';
import { readSetCaps, readSettings } from '../../../src/cli/caller/settings.ts';
import { UsageError } from '../../../src/cli/usage-error.ts';
import { speechgate } from '../../support/speechgate.ts';

const URL = 'https://speech.example';

async function folderWith(t: Test, name: string, text: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-caps-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, name), text);
  await chmod(join(folder, name), 0o600);
  return folder;
}

const isUsage = (fault: RegExp) => (error: unknown) => error instanceof UsageError && fault.test(error.message);

for (const [name, meant] of [
  ['SPEECHGATE_MAX_PERDAY', /^SPEECHGATE_MAX_PERDAY .* Did you mean SPEECHGATE_MAX_PER_DAY\?$/],
  ['SPEECHGATE_MAXPERCALL', /Did you mean SPEECHGATE_MAX_PER_CALL\?/],
  ['SPEECHGATE_MAX_PRE_DAY', /Did you mean SPEECHGATE_MAX_PER_DAY\?/],
  ['SPEECHGATE_MAX_TOTL', /Did you mean SPEECHGATE_MAX_TOTAL\?/],
  ['speechgate_max_total', /Did you mean SPEECHGATE_MAX_TOTAL\?/],
  ['SPEECHGAT_MAX_TOTAL', /Did you mean SPEECHGATE_MAX_TOTAL\?/],
  ['SPEECH_GATE_MAX_TOTAL', /Did you mean SPEECHGATE_MAX_TOTAL\?/],
  ['SPEECHGATE_BUDGET', /It may be SPEECHGATE_CONFIG_DIR, .*SPEECHGATE_MAX_PER_DAY/],
] as const) {
  test(`the variable ${name} is refused, and the one that is meant is named`, async () => {
    assert.throws(() => assertVariables({ PATH: '/bin', [name]: '1' }), isUsage(meant));
  });
}

test('every variable that is read is known', async () => {
  assertVariables({
    ...{ SPEECHGATE_CONFIG_DIR: '/', SPEECHGATE_URL: URL, SPEECHGATE_PAY: 'card', SPEECHGATE_ACCOUNT: 'a' },
    ...{ SPEECHGATE_WALLET_KEY: '0x', SPEECHGATE_TRUST: '[]', SPEECHGATE_BRIDGE_TOKEN: 't', SPEECHGATE_OPERATOR: 'o' },
    ...{ SPEECHGATE_MAX_PER_CALL: '1', SPEECHGATE_MAX_PER_DAY: '1', SPEECHGATE_MAX_TOTAL: '1', HOME: '/' },
  });
});

for (const [config, fault] of [
  ['{"maxPerDy":"1"}', /^maxPerDy in config\.json is no setting\. Did you mean maxPerDay\?$/],
  ['{"max_per_day":"1"}', /Did you mean maxPerDay\?/],
  ['{"max-total":"1"}', /Did you mean maxTotal\?/],
  ['{"maxpercall":"1"}', /Did you mean maxPerCall\?/],
  ['{"budget":"1"}', /budget in config\.json is no setting\. It may be url, pay, maxPerCall/],
  ['{"maxPerDay":1}', /^maxPerDay in config\.json has to be a text in quotes, such as "0\.01".*; it is 1\.$/],
  ['{"maxPerDay":null}', /maxPerDay in config\.json has to be a text/],
  ['{"maxTotal":["1"]}', /maxTotal in config\.json has to be a text/],
  ['{"maxPerCall":""}', /^maxPerCall in config\.json is empty, so it would be no cap\./],
  ['{"maxPerCall":"a lot"}', /^maxPerCall in config\.json takes US dollars/],
  ['{"pay":7}', /pay in config\.json has to be a text/],
  ['{"accounts":[]}', /accounts in config\.json has to be an object/],
  ['[]', /config\.json has to hold an object/],
  ['"x"', /config\.json has to hold an object/],
] as const) {
  test(`config.json ${config} is refused`, async (t) => {
    const env = { SPEECHGATE_CONFIG_DIR: await folderWith(t, 'config.json', config), SPEECHGATE_URL: URL };
    await assert.rejects(readSettings(env), isUsage(fault));
    await assert.rejects(readSetCaps(env), isUsage(fault));
  });
}

for (const [name, text] of [
  ['wallet.json', `{"${URL}":{}}`],
  ['wallet.json', `{"${URL}":7}`],
  ['wallet.json', '[]'],
  ['trust.json', `{"${URL}":{}}`],
  ['trust.json', '7'],
] as const) {
  test(`${name} ${text} is refused`, async (t) => {
    const env = { SPEECHGATE_CONFIG_DIR: await folderWith(t, name, text), SPEECHGATE_URL: URL };
    await assert.rejects(readSettings(env), isUsage(new RegExp(`^${name}`)));
  });
}

test('a blank cap is an error, in a variable and in an option', async () => {
  for (const blank of ['', ' ', '\t']) {
    const env = { SPEECHGATE_CONFIG_DIR: '/nowhere/at/all', SPEECHGATE_URL: URL, SPEECHGATE_MAX_PER_DAY: blank };
    await assert.rejects(readSettings(env), isUsage(/^SPEECHGATE_MAX_PER_DAY is empty, so it would be no cap\./));
    const given = { perCallMicroUsd: ['--a', blank], perDayMicroUsd: ['--b', undefined] } as const;
    assert.throws(() => readCaps({ ...given, totalMicroUsd: ['--c', undefined] }), isUsage(/^--a is empty/));
  }
});

test('the caps are told, or that there is none', async () => {
  assert.equal(
    capsLine({ perCallMicroUsd: 10_000n, totalMicroUsd: 0n }),
    'Caps: 0.010000 USD per call, 0.000000 USD in total.',
  );
  assert.match(capsLine({}), /^There is no cap: .*speechgate connect --max-per-day 1\.$/);
});

test('a misspelt or blank cap ends every command with 2, before anything is asked', async (t) => {
  const folder = await folderWith(t, 'config.json', `{"url":"http://127.0.0.1:1"}`);
  await chmod(folder, 0o700);
  for (const variable of [{ SPEECHGATE_MAX_PERDAY: '1' }, { SPEECHGATE_MAX_PER_DAY: '' }]) {
    for (const args of [
      ['say', 'Hi', '--out', join(folder, 'hi.mp3')],
      ['bridge', '--port', '0'],
      ['mcp', '--folder', folder],
      ['resume'],
      ['deposit', '1'],
      ['budget'],
    ]) {
      const { code, err, out } = await speechgate({ SPEECHGATE_CONFIG_DIR: folder, ...variable }, ...args);
      assert.deepEqual([code, out], [2, ''], `${args[0]}: ${err}`);
      assert.match(err, /SPEECHGATE_MAX_PER_DAY/, args[0]);
    }
  }
});

test('what can spend says under which caps it runs, on standard error', async (t) => {
  const folder = await folderWith(t, 'config.json', '{"url":"http://127.0.0.1:1","maxPerDay":"1"}');
  await chmod(folder, 0o700);
  const base = { SPEECHGATE_CONFIG_DIR: folder, SPEECHGATE_ACCOUNT: '3b241101-e2bb-4255-8caf-4136c566a962' };
  for (const args of [['say', 'Hi', '--out', join(folder, 'hi.mp3')], ['mcp', '--folder', folder], ['resume']]) {
    assert.match((await speechgate(base, ...args)).err, /^Caps: 1\.000000 USD per day\./m, args[0]);
    await writeFile(join(folder, 'config.json'), '{"url":"http://127.0.0.1:1"}');
    assert.match((await speechgate(base, ...args)).err, /^There is no cap:/m, args[0]);
    await writeFile(join(folder, 'config.json'), '{"url":"http://127.0.0.1:1","maxPerDay":"1"}');
  }
});
