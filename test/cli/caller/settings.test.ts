import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { chmod, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { readBaseUrl } from '../../../src/cli/caller/base-url.ts';
import { describeSettings } from '../../../src/cli/caller/describe-settings.ts';
import { readPinnedKeys } from '../../../src/cli/caller/pinned-keys.ts';
import { readSettings } from '../../../src/cli/caller/settings.ts';
import { settingsFolder } from '../../../src/cli/caller/settings-folder.ts';
import {
  changeConfig,
  dropTopUp,
  readConfig,
  type StoredTopUp,
  storeAccount,
  storeTopUp,
  storeTrust,
  storeWallet,
} from '../../../src/cli/caller/stored-settings.ts';
import { readUsd } from '../../../src/cli/caller/usd.ts';
import { UsageError } from '../../../src/cli/usage-error.ts';

const OURS = 'https://speech.example';
const OTHER = 'https://other.example';
const ACCOUNT = '3b241101-e2bb-4255-8caf-4136c566a962';
const WALLET = generatePrivateKey();
const { x, y } = generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ format: 'jwk' });
const PIN = { keyId: 'k1', publicKeyJwk: { kty: 'EC', crv: 'P-256', x: x as string, y: y as string } };

async function stored(t: Test): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-settings-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  await changeConfig(folder, () => ({ url: OURS, pay: 'x402', maxPerDay: '1.5' }));
  await storeAccount(folder, OURS, ACCOUNT);
  await storeWallet(folder, OURS, WALLET);
  await storeTrust(folder, OURS, [PIN]);
  return folder;
}

test('the folder is the one that the environment names', async () => {
  for (const [env, folder] of [
    [{ SPEECHGATE_CONFIG_DIR: '/somewhere', XDG_CONFIG_HOME: '/xdg' }, '/somewhere'],
    [{ XDG_CONFIG_HOME: '/xdg' }, '/xdg/speechgate'],
    [{ XDG_CONFIG_HOME: 'relative' }, /\/\.config\/speechgate$/],
    [{}, /\/\.config\/speechgate$/],
  ] as const) {
    if (typeof folder === 'string') assert.equal(settingsFolder(env), folder);
    else assert.match(settingsFolder(env), folder);
  }
});

test('what is stored is read, and a variable goes before it', async (t) => {
  const folder = await stored(t);
  const env = { SPEECHGATE_CONFIG_DIR: folder };
  const settings = await readSettings(env);
  assert.deepEqual(settings, {
    ...{ folder, baseUrl: OURS, flow: 'direct', account: ACCOUNT, walletKey: WALLET, trust: [PIN] },
    caps: { perDayMicroUsd: 1_500_000n },
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
  });
  assert.deepEqual([said.flow, said.walletKey, said.account], ['prepaid', key, 'a']);
  assert.deepEqual(said.caps, { perCallMicroUsd: 10_000n, perDayMicroUsd: 2_000_000n });
  assert.equal((await readSettings(env, 'card')).flow, 'card');
});

test('an account that no header can carry is refused before anything is sent', async (t) => {
  const folder = await stored(t);
  for (const account of ['a\nb', 'a b', 'ä', '\u{1f388}', 'a\u0000', 'a'.repeat(201)]) {
    const refused = (env: NodeJS.ProcessEnv, place: RegExp) =>
      assert.rejects(
        readSettings({ SPEECHGATE_CONFIG_DIR: folder, ...env }),
        (error: Error) => error instanceof UsageError && place.test(error.message) && !error.message.includes(account),
        JSON.stringify(account),
      );
    await refused({ SPEECHGATE_ACCOUNT: account }, /^SPEECHGATE_ACCOUNT is no id/);
    await changeConfig(folder, () => ({ accounts: { [OURS]: account } }));
    await refused({}, /^accounts in config\.json is no id/);
  }
});

test('account, wallet and keys of one service are never those of another one', async (t) => {
  const folder = await stored(t);
  const other = await readSettings({ SPEECHGATE_CONFIG_DIR: folder, SPEECHGATE_URL: `${OTHER}/` });
  assert.deepEqual([other.baseUrl, other.account, other.walletKey, other.trust], [OTHER, undefined, undefined, []]);
  await changeConfig(folder, () => ({ url: OTHER, maxPerDay: undefined }));
  const back = await readSettings({ SPEECHGATE_CONFIG_DIR: folder, SPEECHGATE_URL: OURS });
  assert.deepEqual([back.account, back.walletKey, back.caps], [ACCOUNT, WALLET, {}]);
});

test('a wallet that another service knows is told', async (t) => {
  const folder = await stored(t);
  const described = async (url: string) =>
    describeSettings(await readSettings({ SPEECHGATE_CONFIG_DIR: folder, SPEECHGATE_URL: url }));
  assert.ok(!(await described(OURS)).lines.some((line) => line.startsWith('WARNING')));
  await storeWallet(folder, OTHER, WALLET);
  const { lines, document } = await described(OTHER);
  assert.ok(lines.some((line) => line.startsWith(`WARNING   ${OURS} knows this wallet too.`)));
  assert.deepEqual((document as { walletAlsoAt: string[] }).walletAlsoAt, [OURS]);
});

test('a wallet that is replaced is kept, since it may hold money', async (t) => {
  const folder = await stored(t);
  await storeWallet(folder, OURS, generatePrivateKey());
  const kept = `wallet-${privateKeyToAccount(WALLET).address}.json`;
  assert.ok((await readdir(folder)).includes(kept));
  assert.equal(JSON.parse(await readFile(join(folder, kept), 'utf8')).privateKey, WALLET);
});

test('an account that is replaced is kept, and each purchase of credit until its own end is known', async (t) => {
  const folder = await stored(t);
  const other = '4b241101-e2bb-4255-8caf-4136c566a962';
  for (const account of [other, other, ACCOUNT, other]) await storeAccount(folder, OURS, account);
  const [five, ten] = [500, 1000].map((amountCents) => ({
    ...{ sessionId: `cs_test_${amountCents}`, checkoutUrl: OTHER, amountCents, account: null, openedAt: 1 },
  })) as [StoredTopUp, StoredTopUp];
  for (const topUp of [five, ten]) await storeTopUp(folder, OURS, topUp);
  await dropTopUp(folder, OURS, five);
  const { accounts, formerAccounts, topUps } = await readConfig(folder);
  assert.deepEqual([accounts, formerAccounts, topUps], [{ [OURS]: other }, { [OURS]: [ACCOUNT] }, { [OURS]: [ten] }]);
});

test('what others could read or have put there is refused, with the way out', {
  skip: process.platform === 'win32',
}, async (t) => {
  const folder = await stored(t);
  const env = { SPEECHGATE_CONFIG_DIR: folder };
  const refused = (fault: RegExp) =>
    assert.rejects(readSettings(env), (error) => error instanceof UsageError && fault.test(error.message));
  await chmod(join(folder, 'trust.json'), 0o604);
  await refused(/trust\.json is open to other users .* chmod 600 '/);
  await chmod(join(folder, 'trust.json'), 0o600);
  await chmod(folder, 0o750);
  await refused(/ is open to other users .* chmod 700 '/);
  await chmod(folder, 0o700);
  await rm(join(folder, 'wallet.json'));
  await symlink(join(folder, 'config.json'), join(folder, 'wallet.json'));
  await refused(/wallet\.json is a link/);
  await rm(join(folder, 'wallet.json'));
  await writeFile(join(folder, 'config.json'), '{');
  await refused(/config\.json is no JSON/);
});

test('amounts, addresses and keys are read strictly', async () => {
  for (const [text, microUsd] of [
    ['0.01', 10_000n],
    ['$5', 5_000_000n],
    [' 1.000001 ', 1_000_001n],
    ['0', 0n],
  ] as const) {
    assert.equal(readUsd(text, '--max'), microUsd);
  }
  for (const text of ['', '-1', '0.0000001', '1e3', '.5', '1,5'])
    assert.throws(() => readUsd(text, '--max'), /^UsageError|--max takes US dollars/);
  assert.equal(readBaseUrl('https://Speech.Example:443/', 'URL'), OURS);
  for (const text of [
    'speech.example',
    'ftp://speech.example',
    `${OURS}/v1`,
    `${OURS}?a=b`,
    'https://user@speech.example',
  ]) {
    assert.throws(() => readBaseUrl(text, 'URL'), /URL takes the address of a service/);
  }
  const stored = { kty: 'EC', crv: 'P-256', x, y, d: 'private', kid: 'k1', status: 'current' };
  for (const keys of [[PIN], { keys: [PIN] }, { keys: [stored] }]) {
    assert.deepEqual(await readPinnedKeys(JSON.stringify(keys), '--trust'), [PIN]);
  }
  const ending = { ...PIN, validUntil: '2030-01-01T00:00:00.000Z' };
  assert.deepEqual(await readPinnedKeys(JSON.stringify({ keys: [{ ...stored, ...ending }] }), '--trust'), [ending]);
  const endless = JSON.stringify([{ ...PIN, validUntil: 'never' }]);
  for (const keys of ['[]', '{}', '{"keys":[{"kty":"RSA","kid":"k"}]}', '{', '/nowhere/at/all', endless]) {
    await assert.rejects(readPinnedKeys(keys, '--trust'), UsageError);
  }
  const secret = 'f'.repeat(63);
  await assert.rejects(
    readSettings({ SPEECHGATE_URL: OURS, SPEECHGATE_CONFIG_DIR: '/nowhere/at/all', SPEECHGATE_WALLET_KEY: secret }),
    ({ message }: Error) => !message.includes(secret),
  );
});
