import { createHash } from 'node:crypto';
import { chown, lstat, readFile, rename, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { readPinnedKeys } from '../../../src/callers/cli/read-values.ts';
import { startGateway } from '../../support/gateway.ts';
import { operatorCommand } from '../../support/operator-command.ts';
import { speechgate } from '../../support/speechgate.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

interface PublishedKey {
  readonly keyId: string;
  readonly status: string;
  readonly publicKeyJwk: { readonly crv: string; readonly kty: string; readonly x: string; readonly y: string };
}

/** RFC 7638, by hand: the required members in the order of their names. */
const thumbprint = ({ crv, kty, x, y }: PublishedKey['publicKeyJwk']) =>
  createHash('sha256').update(JSON.stringify({ crv, kty, x, y })).digest('base64url');

async function keyFile(t: Test) {
  const file = join(await temporaryFolder(t), 'keys.json');
  const env = { SIGNING_KEYS_FILE: file };
  return { file, env, run: (...args: string[]) => operatorCommand(env, 'keys', ...args) };
}

test('speechgate keys prints the published keys and fingerprints, nothing private', async (t) => {
  const { file, run } = await keyFile(t);
  for (const word of ['Made', 'Rotated']) {
    const made = await run();
    t.ok(made.output.startsWith(word));
    t.equal(made.code, 0, made.output);
    const gateway = await startGateway(t, { SIGNING_KEYS_FILE: file });
    const { json } = await gateway.call('/.well-known/x402-service-metadata');
    const published: PublishedKey[] = json.payload.trust.keys;
    for (const { keyId, status, publicKeyJwk } of published) {
      const part = made.output.slice(made.output.indexOf(keyId)).split('\n').slice(0, 3);
      t.match(made.output, new RegExp(`^ +${status} +${keyId}`, 'm'));
      t.match(part[1] ?? '', new RegExp(`fingerprint +${thumbprint(publicKeyJwk)}$`));
      t.strictSame(JSON.parse((part[2] ?? '').replace(/^.*?\{/, '{')), publicKeyJwk);
    }
    for (const { d } of JSON.parse(await readFile(file, 'utf8')).keys) t.ok(!made.output.includes(d));
    t.match(made.output, /trust\.keys/);
  }
});

test('concurrent key rotations run one after the other', async (t) => {
  const { file, env, run } = await keyFile(t);
  const processes = Array.from({ length: 3 }, () => speechgate(env, 'keys'));
  const made = await Promise.all([...processes, ...Array.from({ length: 9 }, () => run())]);
  for (const { code, output } of made) t.equal(code, 0, output);
  t.equal(made.filter(({ output }) => output.startsWith('Made')).length, 1);
  const kept = await readFile(file, 'utf8');
  for (const { output } of made) t.ok(kept.includes(/current +(\S+)/.exec(output)?.[1] ?? 'none'), output);
});

test('speechgate keys --show prints the same and rotates nothing', async (t) => {
  const { file, run } = await keyFile(t);
  const absent = await run('--show');
  t.equal(absent.code, 1);
  t.match(absent.output, /does not exist/);
  const made = await run();
  const before = await readFile(file, 'utf8');
  const shown = await run('--show');
  t.equal(shown.code, 0, shown.output);
  t.strictSame(shown.output.split('\n').slice(1), made.output.split('\n').slice(1));
  t.equal(await readFile(file, 'utf8'), before);
  const trust = await run('--show', '--json');
  const pinned = await readPinnedKeys(trust.out, '--trust');
  t.strictSame(
    pinned.map(({ keyId, publicKeyJwk }) => [keyId, thumbprint(publicKeyJwk as PublishedKey['publicKeyJwk'])]),
    [...made.output.matchAll(/(?:current|next) +(\S+)\n +fingerprint +(\S+)/g)].map(([, id, print]) => [id, print]),
  );
  for (const { d } of JSON.parse(before).keys) t.ok(!trust.out.includes(d));
  t.strictSame([(await run('--json')).code, (await run('--shwo')).code], [2, 2]);
  t.equal(await readFile(file, 'utf8'), before);
});

test('speechgate keys refuses a file that others have planted in its place', async (t) => {
  const { file, run } = await keyFile(t);
  const planted = `${file}.planted`;
  await run();
  await rename(file, planted);
  const before = await readFile(planted, 'utf8');
  await symlink(planted, file);
  const linked = await run();
  t.strictSame([linked.code, (await lstat(file)).isSymbolicLink()], [1, true], linked.output);
  t.match(linked.output, /is a link, which is not followed here/);
  t.equal((await run('--show')).code, 0, 'a mounted secret is a link, and can be shown');
  await rename(planted, file);
  if (process.getuid?.() === 0) {
    await chown(file, 65_534, 65_534);
    const foreign = await run();
    t.equal(foreign.code, 1, foreign.output);
    t.match(foreign.output, /belongs to user id 65534/);
  }
  t.equal(await readFile(file, 'utf8'), before);
});
