import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { chmod, chown, lstat, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { readSandboxParts } from '../../../src/callers/cli/connect-command.ts';
import { readBaseUrl, readPinnedKeys } from '../../../src/callers/cli/read-values.ts';
import { describeSettings, readCaps, readSetCaps, readSettings } from '../../../src/callers/cli/settings.ts';
import { settingsFolder } from '../../../src/callers/cli/settings-folder.ts';
import {
  assertVariables,
  changeConfig,
  storeAccount,
  storeTrust,
  storeWallet,
} from '../../../src/callers/cli/stored-settings.ts';
import { rotateKeys } from '../../../src/config/signing-keys.ts';
import { readUsd, UsageError } from '../../../src/lib/arguments.ts';
import { callerCommand } from '../../support/caller-command.ts';
import { ONE_MODEL } from '../../support/client.ts';
import { serve } from '../../support/listening.ts';
import { speechgate } from '../../support/speechgate.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

/**
 * Starts a service that has one model and answers nothing else. Returns its address.
 * @param together how many requests for the model must have arrived before the first one is answered
 */
async function startCatalogServer(t: Test, together = 1): Promise<string> {
  const body = JSON.stringify(ONE_MODEL);
  let arrived = 0;
  let answer = () => {};
  const all = new Promise<void>((resolve) => (answer = resolve));
  return serve(t, async (request, response) => {
    const status = request.url === '/tts/models' ? 200 : 404;
    if (status === 200 && ++arrived === together) answer();
    if (status === 200) await all;
    response.writeHead(status, { 'content-type': 'application/json' }).end(status === 200 ? body : '{}');
  });
}

const OURS = 'https://speech.example';
const OTHER = 'https://other.example';
const ACCOUNT = '3b241101-e2bb-4255-8caf-4136c566a962';
const WALLET = generatePrivateKey();
const { x, y } = generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ format: 'jwk' });
const PIN = { keyId: 'k1', publicKeyJwk: { kty: 'EC', crv: 'P-256', x: x as string, y: y as string } };

async function stored(t: Test): Promise<string> {
  const folder = await temporaryFolder(t);
  await changeConfig(folder, () => ({ url: OURS, pay: 'x402', maxPerDay: '1.5' }));
  await storeAccount(folder, OURS, ACCOUNT);
  await storeWallet(folder, OURS, WALLET);
  await storeTrust(folder, OURS, [PIN]);
  return folder;
}

test('the environment selects the settings folder', async (t) => {
  for (const [env, folder] of [
    [{ SPEECHGATE_CONFIG_DIR: '/somewhere', XDG_CONFIG_HOME: '/xdg' }, '/somewhere'],
    [{ XDG_CONFIG_HOME: '/xdg' }, '/xdg/speechgate'],
    [{ XDG_CONFIG_HOME: 'relative' }, /\/\.config\/speechgate$/],
    [{}, /\/\.config\/speechgate$/],
  ] as const) {
    if (typeof folder === 'string') t.equal(settingsFolder(env), folder);
    else t.match(settingsFolder(env), folder);
  }
});

test('environment variables override stored settings', async (t) => {
  const folder = await stored(t);
  const env = { SPEECHGATE_CONFIG_DIR: folder };
  t.strictSame(await readSettings(env), {
    ...{ folder, baseUrl: OURS, flow: 'direct', account: ACCOUNT, walletKey: WALLET, trust: [PIN] },
    caps: { perDayMicroUsd: 1_500_000n },
    node: undefined,
  });
  const key = generatePrivateKey();
  const said = await readSettings({
    ...{
      ...env,
      SPEECHGATE_PAY: 'prepaid',
      SPEECHGATE_WALLET_KEY: key.slice(2).toUpperCase(),
      SPEECHGATE_ACCOUNT: ' a ',
    },
    ...{ SPEECHGATE_MAX_PER_CALL: '0.01', SPEECHGATE_MAX_PER_DAY: '2', SPEECHGATE_TRUST: JSON.stringify([PIN]) },
    SPEECHGATE_RPC_URL: 'https://node.example/key',
  });
  t.strictSame([said.flow, said.walletKey, said.account], ['prepaid', key, 'a']);
  t.equal(said.node, 'https://node.example/key');
  await assert.rejects(
    readSettings({ ...env, SPEECHGATE_RPC_URL: 'node/secret' }),
    isUsage(/^SPEECHGATE_RPC_URL must be/),
  );
  t.strictSame(said.caps, { perCallMicroUsd: 10_000n, perDayMicroUsd: 2_000_000n });
  t.equal((await readSettings(env, 'card')).flow, 'card');
});

test('an account id that no header can carry is refused before a request is sent', async (t) => {
  const folder = await stored(t);
  for (const account of ['a\nb', 'a b', 'ä', 'a'.repeat(201)]) {
    const refused = (env: NodeJS.ProcessEnv, place: RegExp) =>
      assert.rejects(
        readSettings({ SPEECHGATE_CONFIG_DIR: folder, ...env }),
        (error: Error) => error instanceof UsageError && place.test(error.message) && !error.message.includes(account),
        JSON.stringify(account),
      );
    await refused({ SPEECHGATE_ACCOUNT: account }, /^SPEECHGATE_ACCOUNT is not the id/);
    await changeConfig(folder, () => ({ accounts: { [OURS]: account } }));
    await refused({}, /^accounts in config\.json is not the id/);
  }
});

test('account, wallet and keys of one service are never used for another', async (t) => {
  const folder = await stored(t);
  const other = await readSettings({ SPEECHGATE_CONFIG_DIR: folder, SPEECHGATE_URL: `${OTHER}/` });
  t.strictSame([other.baseUrl, other.account, other.walletKey, other.trust], [OTHER, undefined, undefined, []]);
  await changeConfig(folder, () => ({ url: OTHER, maxPerDay: undefined }));
  const back = await readSettings({ SPEECHGATE_CONFIG_DIR: folder, SPEECHGATE_URL: OURS });
  t.strictSame([back.account, back.walletKey, back.caps], [ACCOUNT, WALLET, {}]);
});

test('a wallet shared with another service causes a warning, and a replaced one is kept', async (t) => {
  const folder = await stored(t);
  const described = async (url: string) =>
    describeSettings(await readSettings({ SPEECHGATE_CONFIG_DIR: folder, SPEECHGATE_URL: url }));
  t.ok(!(await described(OURS)).lines.some((line) => line.startsWith('WARNING')));
  await storeWallet(folder, OTHER, WALLET);
  const { lines, document } = await described(OTHER);
  t.ok(lines.some((line) => line.startsWith(`WARNING   this wallet is also set for ${OURS}.`)));
  t.strictSame((document as { walletAlsoAt: string[] }).walletAlsoAt, [OURS]);
  await storeWallet(folder, OURS, generatePrivateKey());
  const kept = JSON.parse(await readFile(join(folder, `wallet-${privateKeyToAccount(WALLET).address}.json`), 'utf8'));
  t.equal(kept.privateKey, WALLET, 'since it may hold money');
});

test('settings that others can read or have replaced are refused with the fix', {
  skip: process.platform === 'win32',
}, async (t) => {
  const folder = await stored(t);
  const env = { SPEECHGATE_CONFIG_DIR: folder };
  const refused = (fault: RegExp) =>
    assert.rejects(readSettings(env), (error) => error instanceof UsageError && fault.test(error.message));
  await chmod(join(folder, 'trust.json'), 0o604);
  await refused(/Other users of this machine can read .*trust\.json, .* chmod 600 '/);
  await chmod(join(folder, 'trust.json'), 0o600);
  await chmod(folder, 0o750);
  await refused(/Other users of this machine can read .* chmod 700 '/);
  await chmod(folder, 0o700);
  await rm(join(folder, 'wallet.json'));
  await symlink(join(folder, 'config.json'), join(folder, 'wallet.json'));
  await refused(/wallet\.json is a link/);
  await rm(join(folder, 'wallet.json'));
  await writeFile(join(folder, 'config.json'), '{');
  await refused(/config\.json is not valid JSON\. Fix it, or remove it/);
});

test('amounts, addresses and keys are parsed strictly', async (t) => {
  for (const [text, microUsd] of [
    ['0.01', 10_000n],
    ['$5', 5_000_000n],
    [' 1.000001 ', 1_000_001n],
    ['0', 0n],
  ] as const) {
    t.equal(readUsd(text, '--max'), microUsd);
  }
  for (const text of ['', '-1', '0.0000001', '1e3', '1,5'])
    t.throws(() => readUsd(text, '--max'), /^UsageError|--max must be US dollars/);
  t.equal(readBaseUrl('https://Speech.Example:443/', 'URL'), OURS);
  for (const text of ['speech.example', 'ftp://speech.example', `${OURS}/v1`, 'https://user@speech.example'])
    t.throws(() => readBaseUrl(text, 'URL'), /URL must be an http or https URL without a path/);
  const stored = { kty: 'EC', crv: 'P-256', x, y, d: 'private', kid: 'k1', status: 'current' };
  for (const keys of [[PIN], { keys: [PIN] }, { keys: [stored] }])
    t.strictSame(await readPinnedKeys(JSON.stringify(keys), '--trust'), [PIN]);
  const ending = { ...PIN, validUntil: '2030-01-01T00:00:00.000Z' };
  t.strictSame(await readPinnedKeys(JSON.stringify({ keys: [{ ...stored, ...ending }] }), '--trust'), [ending]);
  const endless = JSON.stringify([{ ...PIN, validUntil: 'never' }]);
  for (const keys of ['[]', '{"keys":[{"kty":"RSA","kid":"k"}]}', '{', '/nowhere/at/all', endless])
    await assert.rejects(readPinnedKeys(keys, '--trust'), UsageError);
  const secret = 'f'.repeat(63);
  await assert.rejects(
    readSettings({ SPEECHGATE_URL: OURS, SPEECHGATE_CONFIG_DIR: '/nowhere/at/all', SPEECHGATE_WALLET_KEY: secret }),
    ({ message }: Error) => !message.includes(secret),
  );
});

const NOBODY = 65_534;
const IS_ROOT = process.geteuid?.() === 0;
const GOOD = {
  baseUrl: 'http://127.0.0.1:8080',
  creditAccount: '0190b7c2-5a8f-7cc0-8f53-3b8a30d8a1e4',
  checkoutUrl: 'http://127.0.0.1:4242',
  chain: { rpcUrl: 'http://127.0.0.1:8545/secret', chainId: 8453, asset: `0x${'ab'.repeat(20)}` },
  facilitatorUrl: 'http://127.0.0.1:4343',
  wallet: { address: `0x${'cd'.repeat(20)}`, privateKey: `0x${'12'.repeat(32)}` },
  databaseUrl: 'postgres://speechgate:password@127.0.0.1:5432/speechgate',
};

/** A folder with what a sandbox writes, changed. */
async function folderWith(t: Test, change: object = {}): Promise<string> {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, 'sandbox.json'), JSON.stringify({ ...GOOD, ...change }), { mode: 0o600 });
  const keys = JSON.stringify(rotateKeys(undefined, new Date()));
  await writeFile(join(folder, 'signing-keys.json'), keys, { mode: 0o600 });
  return folder;
}

const refused = (folder: string, message: RegExp) =>
  assert.rejects(readSandboxParts(folder), (error) => {
    assert.ok(error instanceof UsageError, String(error));
    assert.match(error.message, message);
    return true;
  });

test('the files of a sandbox are read', async (t) => {
  const { baseUrl, creditAccount, wallet, trust } = await readSandboxParts(await folderWith(t));
  const { baseUrl: url, creditAccount: account, wallet: own } = GOOD;
  t.strictSame({ baseUrl, creditAccount, wallet }, { baseUrl: url, creditAccount: account, wallet: own });
  t.ok(trust.length > 0);
  const none = await folderWith(t, { chain: null, wallet: null, facilitatorUrl: null });
  t.strictSame((await readSandboxParts(none)).trust, []);
});

test('a sandbox.json with an invalid member is refused by its name', async (t) => {
  for (const [member, values] of Object.entries({
    baseUrl: ['http://speech.example', 'http://127.0.0.1.evil.example', 'file:///etc', 7, undefined],
    creditAccount: ['../../x', `${GOOD.creditAccount}\n`, null, undefined],
    checkoutUrl: ['https://pay.example', undefined],
    facilitatorUrl: ['http://facilitator.example', 7],
    chain: ['x', { ...GOOD.chain, rpcUrl: 'http://node.example' }, { ...GOOD.chain, asset: '0x1' }],
    wallet: ['x', { ...GOOD.wallet, privateKey: '0x12' }, { ...GOOD.wallet, address: 'x' }],
  })) {
    for (const value of values) {
      const folder = await folderWith(t, { [member]: value });
      await refused(folder, new RegExp(`^The sandbox file ${join(folder, 'sandbox.json')} is damaged.*: .*${member}`));
    }
  }
});

test('sandbox files that are links, of another user, or that others can write are refused', async (t) => {
  for (const name of ['sandbox.json', 'signing-keys.json']) {
    const open = await folderWith(t);
    await chmod(join(open, name), 0o660);
    await refused(open, /Other users of this machine can write to .*chmod go-w/);
    const linked = await folderWith(t);
    await rename(join(linked, name), join(linked, 'elsewhere'));
    await symlink('elsewhere', join(linked, name));
    await refused(linked, /is a link/);
    t.ok((await lstat(join(linked, name))).isSymbolicLink());
  }
  const folder = await folderWith(t);
  await chmod(folder, 0o777);
  await refused(folder, /Other users of this machine can write to .*chmod go-w/);
  const skip = !IS_ROOT && 'it takes root to give a file away';
  await t.test('of another user', { skip }, async (t) => {
    for (const name of ['.', 'sandbox.json', 'signing-keys.json']) {
      const folder = await folderWith(t);
      await chown(join(folder, name), NOBODY, NOBODY);
      await refused(folder, /belongs to user id 65534/);
    }
  });
});

test('commands use plain http to another machine only where that was allowed', async (t) => {
  const folder = await temporaryFolder(t);
  const env = { SPEECHGATE_CONFIG_DIR: folder };
  const { port } = new URL(await startCatalogServer(t));
  // It leads to this machine, and is not known to.
  const url = `http://0.0.0.0:${port}`;
  for (const [run, name] of [
    [callerCommand(env, 'connect', url), 'connect'],
    [callerCommand({ ...env, SPEECHGATE_URL: url }, 'models'), 'models'],
    [callerCommand({ ...env, SPEECHGATE_URL: url, SPEECHGATE_ACCOUNT: crypto.randomUUID() }, 'balance'), 'balance'],
    [callerCommand({ ...env, SPEECHGATE_URL: url }, 'top-up'), 'top-up'],
  ] as const) {
    const { code, err } = await run;
    t.equal(code, 2, name);
    t.match(err, /is not encrypted.*--insecure.*Nothing was sent/, name);
  }
  const allowed = await callerCommand({ ...env, SPEECHGATE_URL: url, SPEECHGATE_INSECURE: 'true' }, 'models');
  t.equal(allowed.code, 0, allowed.err);
  const connected = await callerCommand(env, 'connect', url, '--insecure');
  t.equal(connected.code, 0, connected.err);
  t.strictSame(JSON.parse(await readFile(join(folder, 'config.json'), 'utf8')).insecure, { [url]: true });
  t.equal((await callerCommand(env, 'models')).code, 0);
});

// A cap that is misspelt, blank or of another type is an error, never no cap.

const SERVICE_URL = 'https://speech.example';

async function folderWithFile(t: Test, name: string, text: string): Promise<string> {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, name), text);
  await chmod(join(folder, name), 0o600);
  return folder;
}

const isUsage = (fault: RegExp) => (error: unknown) => error instanceof UsageError && fault.test(error.message);

test('a variable that is misspelt is refused with a suggestion', async () => {
  for (const [name, meant] of [
    ['SPEECHGATE_MAX_PERDAY', /^SPEECHGATE_MAX_PERDAY .* Did you mean SPEECHGATE_MAX_PER_DAY\?$/],
    ['SPEECHGATE_MAX_TOTL', /Did you mean SPEECHGATE_MAX_TOTAL\?/],
    ['speechgate_max_total', /Did you mean SPEECHGATE_MAX_TOTAL\?/],
    ['SPEECHGAT_MAX_TOTAL', /Did you mean SPEECHGATE_MAX_TOTAL\?/],
    ['SPEECH_GATE_MAX_TOTAL', /Did you mean SPEECHGATE_MAX_TOTAL\?/],
    ['SPEECHGATE_BUDGET', /Use one of SPEECHGATE_CONFIG_DIR, .*SPEECHGATE_MAX_PER_DAY/],
  ] as const) {
    assert.throws(() => assertVariables({ PATH: '/bin', [name]: '1' }), isUsage(meant));
  }
  const read =
    'CONFIG_DIR URL PAY ACCOUNT WALLET_KEY TRUST BRIDGE_TOKEN OPERATOR MAX_PER_CALL MAX_PER_DAY MAX_TOTAL RPC_URL';
  assertVariables({ HOME: '/', ...Object.fromEntries(read.split(' ').map((name) => [`SPEECHGATE_${name}`, '1'])) });
});

test('a settings file with an unknown, blank or mistyped member is refused', async (t) => {
  for (const [config, fault] of [
    ['{"maxPerDy":"1"}', /^maxPerDy in config\.json is not a setting\. Did you mean maxPerDay\?$/],
    ['{"max-total":"1"}', /Did you mean maxTotal\?/],
    ['{"budget":"1"}', /budget in config\.json is not a setting\. Use one of url, pay, maxPerCall/],
    ['{"maxPerDay":1}', /^maxPerDay in config\.json must be text in quotes, such as "0\.01", not 1\.$/],
    ['{"maxPerDay":null}', /maxPerDay in config\.json must be text in quotes/],
    ['{"maxPerCall":""}', /^The cap maxPerCall in config\.json is empty\. Set US dollars, .* or remove it\./],
    ['{"maxPerCall":"a lot"}', /^maxPerCall in config\.json must be US dollars/],
    ['{"accounts":[]}', /accounts in config\.json must be an object/],
    ['[]', /config\.json must contain a JSON object/],
  ] as const) {
    const env = { SPEECHGATE_CONFIG_DIR: await folderWithFile(t, 'config.json', config), SPEECHGATE_URL: SERVICE_URL };
    await assert.rejects(readSettings(env), isUsage(fault), config);
    await assert.rejects(readSetCaps(env), isUsage(fault), config);
  }
  for (const [name, text] of [
    ['wallet.json', `{"${SERVICE_URL}":{}}`],
    ['wallet.json', '[]'],
    ['trust.json', `{"${SERVICE_URL}":{}}`],
    ['trust.json', '7'],
  ] as const) {
    const env = { SPEECHGATE_CONFIG_DIR: await folderWithFile(t, name, text), SPEECHGATE_URL: SERVICE_URL };
    await assert.rejects(readSettings(env), isUsage(new RegExp(`^The settings file ${name} `)), text);
  }
});

test('a blank cap is refused in a variable and in an option', async () => {
  for (const blank of ['', ' ', '\t']) {
    const env = { SPEECHGATE_CONFIG_DIR: '/nowhere/at/all', SPEECHGATE_URL: SERVICE_URL };
    const fault = isUsage(/^The cap SPEECHGATE_MAX_PER_DAY is empty\. Set US dollars, .* or remove it\./);
    await assert.rejects(readSettings({ ...env, SPEECHGATE_MAX_PER_DAY: blank }), fault);
    const given = { perCallMicroUsd: ['--a', blank], perDayMicroUsd: ['--b', undefined] } as const;
    assert.throws(() => readCaps({ ...given, totalMicroUsd: ['--c', undefined] }), isUsage(/^The cap --a is empty/));
  }
});

test('a misspelt or blank cap ends every command with 2 before a request is sent', async (t) => {
  const folder = await folderWithFile(t, 'config.json', `{"url":"http://127.0.0.1:1"}`);
  await chmod(folder, 0o700);
  const env = { SPEECHGATE_CONFIG_DIR: folder, SPEECHGATE_ACCOUNT: ACCOUNT };
  const spending = [['say', 'Hi', '--out', join(folder, 'hi.mp3')], ['mcp', '--folder', folder], ['resume']];
  for (const args of [...spending, ['bridge', '--port', '0'], ['deposit', '1'], ['budget']]) {
    for (const variable of [{ SPEECHGATE_MAX_PERDAY: '1' }, { SPEECHGATE_MAX_PER_DAY: '' }]) {
      const { code, err, out } = await callerCommand({ ...env, ...variable }, ...args);
      t.strictSame([code, out], [2, ''], `${args[0]}: ${err}`);
      assert.match(err, /SPEECHGATE_MAX_PER_DAY/, args[0]);
    }
  }
  for (const args of spending) {
    const capped = await callerCommand({ ...env, SPEECHGATE_MAX_PER_DAY: '1', SPEECHGATE_MAX_TOTAL: '0' }, ...args);
    assert.match(capped.err, /^Caps: 1\.000000 USD per day, 0\.000000 USD in total\./m, args[0]);
    assert.match((await callerCommand(env, ...args)).err, /^There is no cap: .*speechgate connect --max-per-day 1\./m);
  }
});

test('parallel changes to the settings lose no account and no private key', async (t) => {
  const secrets = Array.from({ length: 4 }, () => ({ account: crypto.randomUUID(), key: generatePrivateKey() }));
  // The commands store their settings once all have connected.
  const url = await startCatalogServer(t, secrets.length);
  const folder = await temporaryFolder(t);
  const settings = join(folder, 'settings');
  const runs = secrets.map(async ({ account, key }, index) => {
    const [accountFile, keyFile] = [join(folder, `account-${index}`), join(folder, `key-${index}`)];
    await writeFile(accountFile, account, { mode: 0o600 });
    await writeFile(keyFile, key, { mode: 0o600 });
    const args = ['connect', url, '--account', accountFile, '--wallet', keyFile];
    const env = { SPEECHGATE_CONFIG_DIR: settings };
    // Half of them within one process.
    const { code, err } = await (index % 2 === 0 ? speechgate : callerCommand)(env, ...args);
    assert.equal(code, 0, err);
  });
  await Promise.all(runs);
  const { accounts, formerAccounts } = JSON.parse(await readFile(join(settings, 'config.json'), 'utf8'));
  t.strictSame([accounts[url], ...formerAccounts[url]].sort(), secrets.map(({ account }) => account).sort());
  const files = (await readdir(settings)).filter((name) => name.startsWith('wallet'));
  const wallets = await Promise.all(files.map(async (name) => readFile(join(settings, name), 'utf8')));
  for (const { key } of secrets) t.ok(wallets.some((text) => text.includes(key)));
});
