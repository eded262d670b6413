import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'tap';
import { parseSigningKeys, rotateKeys } from '../../src/config/signing-keys.ts';
import { missingPackages } from '../../src/lib/missing-packages.ts';
import { httpArguments, packagedBinary } from '../../src/sandbox/chain/anvil.ts';
import { folderFault } from '../../src/sandbox/claim-folder.ts';
import { lineForPeople } from '../../src/sandbox/instructions.ts';
import { nobody } from '../../src/sandbox/postgres/account.ts';
import { packageName } from '../../src/sandbox/postgres/binaries.ts';
import { writeTrustFile } from '../../src/sandbox/usdc.ts';
import { projectFile } from '../support/project.ts';
import { sandboxFolder } from '../support/sandbox-folder.ts';

const PLATFORMS = [
  ['darwin', 'arm64'],
  ['darwin', 'x64'],
  ['linux', 'arm64'],
  ['linux', 'x64'],
  ['win32', 'x64'],
] as const;

interface LockedPackage {
  readonly os?: string[];
  readonly cpu?: string[];
  readonly bin?: Record<string, string>;
}

const { packages } = JSON.parse(await readFile(projectFile('package-lock.json'), 'utf8')) as {
  packages: Record<string, LockedPackage>;
};

for (const [platform, arch] of PLATFORMS) {
  test(`chain and database are found where npm installs them on ${platform} ${arch}`, async (t) => {
    const [, name = '', program = ''] = /^(@[^/]+\/[^/]+)\/(.*)$/.exec(packagedBinary(platform, arch)) ?? [];
    const chain = packages[`node_modules/${name}`];
    t.strictSame([chain?.os, chain?.cpu, chain?.bin], [[platform], [arch], { anvil: program }]);
    const database = packages[`node_modules/${packageName(platform, arch)}`];
    t.strictSame([database?.os, database?.cpu], [[platform], [arch]]);
  });
}

test('the account nobody is found in /etc/passwd of Linux and macOS', async (t) => {
  const linux = 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n';
  t.strictSame(nobody(linux), { uid: 65534, gid: 65534, identity: { uid: 65534, gid: 65534 } });
  const macOs = '# User Database\nnobody:*:-2:-2:Unprivileged User:/var/empty:/usr/bin/false\n';
  t.strictSame(nobody(macOs), { uid: 4294967294, gid: 4294967294, identity: { uid: -2, gid: -2 } });
  t.equal(nobody('root:x:0:0:root:/root:/bin/sh\n'), undefined);
});

test('without a multicast address anvil gets a port that browsers block', async (t) => {
  for (const platform of ['darwin', 'win32'] as const) {
    const [, host, , port] = await httpArguments(platform);
    t.equal(host, '127.0.0.1');
    // Node blocks the ports of the same list.
    await assert.rejects(fetch(`http://127.0.0.1:${port}/`), ({ cause }) => /bad port/.test(String(cause)));
  }
});

test("trust.json contains the gateway's public keys and no private key", async (t) => {
  const folder = await sandboxFolder(t);
  const stored = JSON.stringify(rotateKeys(undefined, new Date()));
  await writeTrustFile(folder, stored);
  const keys = parseSigningKeys(stored, new Date());
  t.equal(keys.length, 2);
  t.strictSame(
    JSON.parse(await readFile(join(folder, 'trust.json'), 'utf8')),
    keys.map(({ keyId, publicJwk: { x, y } }) => ({ keyId, publicKeyJwk: { kty: 'EC', crv: 'P-256', x, y } })),
  );
});

for (const [error, fault] of [
  [
    Object.assign(new Error('x'), { code: 'EACCES', path: '/data/postgres' }),
    /^\/data\/postgres is not writable \(EACCES\)/,
  ],
  [Object.assign(new Error('x'), { code: 'EACCES', path: '/etc/passwd' }), undefined],
  [new Error('ENOSPC: no space left on device, write'), /^The disk of \/data is full\./],
  [new Error('initdb failed\nFATAL: could not write: No space left on device'), /^The disk of \/data is full\./],
  [new Error('anything else'), undefined],
] as const) {
  test(`the error ${error.message.split('\n')[0]} is told as ${fault}`, async (t) => {
    if (fault) t.match(folderFault('/data', error) ?? '', fault);
    else t.equal(folderFault('/data', error), undefined);
  });
}

for (const [record, line] of [
  [{ method: 'GET', route: null, status: 404, ms: 1.4 }, /^\S+ {2}GET \(no such path\) {2}404 {2}1 ms\n$/],
  [{ method: null, route: null, status: 400 }, /^\S+ {2}\(invalid HTTP\) {2}400\n$/],
  [{ method: 'POST', route: '/tts', status: null, end: 'caller_left', ms: 5 }, /POST \/tts {2}caller_left {2}5 ms\n$/],
  [
    { method: 'POST', route: '/tts', status: 200, ms: 9, characters: 2, chargedMicroUsd: 36 },
    /200 {2}2 characters {2}\$0\.000036 /,
  ],
] as const) {
  test(`a request is a line for people: ${line.source.slice(0, 40)}`, async (t) => {
    t.match(lineForPeople(JSON.stringify({ level: 'info', msg: 'request', ...record }), true), line);
  });
}

test('a warning stays a line of JSON, and requests of the start are not printed', async (t) => {
  const warning = '{"level":"warn","msg":"x"}\n';
  const others = ['{"level":"info","msg":"x"}\n', '{"level":"info","msg":"request","ms":1}\n'];
  const told = [warning, ...others].map((line) => lineForPeople(line, false));
  t.strictSame(told, [warning, '', '']);
});

test('a Node.js that is too old is named with the version that is needed', async (t) => {
  t.match(missingPackages('say', [], '18.20.8') ?? '', /needs Node\.js 20\.19 or newer, but this is 18\.20\.8\./);
  t.match(missingPackages('say', [], '20.9.0') ?? '', /20\.9\.0/);
  for (const node of ['20.19.0', '24.0.1']) t.equal(missingPackages('say', [], node), undefined);
});
