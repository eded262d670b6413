import assert from 'node:assert/strict';
import { chmod, chown, lstat, mkdtemp, realpath, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { readSandboxParts } from '../../../src/cli/caller/sandbox-parts.ts';
import { UsageError } from '../../../src/cli/usage-error.ts';
import { rotateKeys } from '../../../src/x402/signing-keys.ts';

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
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'speechgate-sandbox-parts-')));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
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

test('what a sandbox has written is read', async (t) => {
  const { baseUrl, creditAccount, wallet, trust } = await readSandboxParts(await folderWith(t));
  assert.deepEqual(
    { baseUrl, creditAccount, wallet },
    { ...{ baseUrl: GOOD.baseUrl, wallet: GOOD.wallet }, creditAccount: GOOD.creditAccount },
  );
  assert.ok(trust.length > 0);
  assert.deepEqual(
    (await readSandboxParts(await folderWith(t, { chain: null, wallet: null, facilitatorUrl: null }))).trust,
    [],
  );
});

for (const [member, values] of [
  [
    'baseUrl',
    ['http://speech.example', 'http://127.0.0.1.evil.example', 'http://10.0.0.1', 'file:///etc', 7, undefined],
  ],
  ['creditAccount', ['x', '../../x', `${GOOD.creditAccount}\n`, null, undefined]],
  ['checkoutUrl', ['https://pay.example', undefined]],
  ['facilitatorUrl', ['http://facilitator.example', 7]],
  ['chain', ['x', { ...GOOD.chain, rpcUrl: 'http://node.example' }, { ...GOOD.chain, asset: '0x1' }]],
  ['wallet', ['x', { ...GOOD.wallet, privateKey: '0x12' }, { ...GOOD.wallet, address: 'x' }]],
] as const) {
  test(`a sandbox.json is refused for a ${member} that no sandbox writes`, async (t) => {
    for (const value of values) {
      const folder = await folderWith(t, { [member]: value });
      await refused(folder, new RegExp(`^${join(folder, 'sandbox.json')} is not what a sandbox writes: .*${member}`));
    }
  });
}

test('files of a sandbox that others can write, or that are links, are refused', async (t) => {
  for (const name of ['sandbox.json', 'signing-keys.json']) {
    const open = await folderWith(t);
    await chmod(join(open, name), 0o660);
    await refused(open, /Other users of this machine can write to .*chmod go-w/);
    const linked = await folderWith(t);
    await rename(join(linked, name), join(linked, 'elsewhere'));
    await symlink('elsewhere', join(linked, name));
    await refused(linked, /is a link/);
    assert.ok((await lstat(join(linked, name))).isSymbolicLink());
  }
  const folder = await folderWith(t);
  await chmod(folder, 0o777);
  await refused(folder, /Other users of this machine can write to .*chmod go-w/);
});

test('files and folders of a sandbox of somebody else are refused', {
  skip: !IS_ROOT && 'it takes root to give a file away',
}, async (t) => {
  for (const name of ['.', 'sandbox.json', 'signing-keys.json']) {
    const folder = await folderWith(t);
    await chown(join(folder, name), NOBODY, NOBODY);
    await refused(folder, /belongs to user id 65534/);
  }
});
