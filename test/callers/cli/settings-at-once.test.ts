/** Many commands change the settings at the same time. */
import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'tap';
import { generatePrivateKey } from 'viem/accounts';
import { startCatalogServer } from '../../support/catalog-server.ts';
import { speechgate } from '../../support/speechgate.ts';

const COMMANDS = 6;
const OWN_MODE = 0o600;

test('parallel changes to the settings lose no account and no private key', async (t) => {
  const url = await startCatalogServer(t);
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-at-once-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const settings = join(folder, 'settings');
  const secrets = Array.from({ length: COMMANDS }, () => ({ account: crypto.randomUUID(), key: generatePrivateKey() }));

  const runs = secrets.map(async ({ account, key }, index) => {
    const [accountFile, keyFile] = [join(folder, `account-${index}`), join(folder, `key-${index}`)];
    await writeFile(accountFile, account, { mode: OWN_MODE });
    await writeFile(keyFile, key, { mode: OWN_MODE });
    const args = ['connect', url, '--account', accountFile, '--wallet', keyFile];
    const { code, err } = await speechgate({ SPEECHGATE_CONFIG_DIR: settings }, ...args);
    assert.equal(code, 0, err);
  });
  await Promise.all(runs);

  const { accounts, formerAccounts } = JSON.parse(await readFile(join(settings, 'config.json'), 'utf8'));
  assert.deepEqual([accounts[url], ...formerAccounts[url]].sort(), secrets.map(({ account }) => account).sort());
  const files = (await readdir(settings)).filter((name) => name.startsWith('wallet'));
  const wallets = await Promise.all(files.map(async (name) => readFile(join(settings, name), 'utf8')));
  for (const { key } of secrets) assert.ok(wallets.some((text) => text.includes(key)));
});
