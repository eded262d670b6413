/** Commands follow the keys of a service from one process to the next. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Test, t, test } from 'tap';
import type { PinnedKey } from '../../../src/client/index.ts';
import type { SigningKey } from '../../../src/x402/signing-keys.ts';
import { pinsOf } from '../../support/client.ts';
import { startGateway } from '../../support/gateway.ts';
import { type Lie, ofMetadata, type Payload, startLyingServer } from '../../support/lying-server.ts';
import { speechgate } from '../../support/speechgate.ts';

const lying = await startLyingServer(t);
const gateway = await startGateway(t, { BASE_URL: lying.url });
lying.target = gateway.url;
const [current, next] = gateway.config.signingKeys as [SigningKey, SigningKey];
const [pin, nextPin] = pinsOf(gateway) as [PinnedKey, PinnedKey];
const later = (ms: number) => new Date(Date.now() + ms).toISOString();
const MINUTE_MS = 60_000;

/** Metadata that was issued so long ago, valid as long as it is said. */
const issued = (agoMs: number, validMs: number, key: SigningKey, change: (payload: Payload) => void = () => {}): Lie =>
  ofMetadata((document) => {
    change(document.payload);
    document.payload.validity = { issuedAt: later(-agoMs), validFrom: later(-agoMs), validUntil: later(validMs) };
    return document;
  }, key);

const rotated = ({ trust }: Payload) => {
  Object.assign(trust.keys[0] ?? {}, { status: 'retiring', validUntil: later(10 * MINUTE_MS) });
  Object.assign(trust.keys[1] ?? {}, { status: 'current' });
};

/** The commands of somebody who has pinned these keys. */
async function pinned(t: Test, keys: readonly PinnedKey[]) {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-followed-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const env = { SPEECHGATE_CONFIG_DIR: join(folder, 'settings') };
  const pin = async (keys: readonly PinnedKey[]) => {
    await writeFile(join(folder, 'keys.json'), JSON.stringify(keys));
    return speechgate(env, 'connect', lying.url, '--trust', join(folder, 'keys.json'), '--json');
  };
  /** What a command says of the metadata: `taken`, or why it was refused. */
  const verify = async (more: Record<string, string> = {}) => {
    const { code, err } = await speechgate({ ...env, ...more }, 'verify-metadata', '--json');
    return code === 0 ? 'taken' : JSON.parse(err).error.reason;
  };
  const connected = await pin(keys);
  return { pin, verify, connected };
}

test('a command trusts the keys that earlier commands have followed', async (t) => {
  lying.lie = issued(5_000, MINUTE_MS, current);
  const { verify, pin: repin } = await pinned(t, [pin]);
  lying.lie = issued(4_000, MINUTE_MS, next, rotated);
  assert.equal(await verify(), 'taken');
  lying.lie = issued(3_000, MINUTE_MS, next, ({ trust }) => {
    rotated({ trust } as Payload);
    trust.keys.shift();
  });
  assert.equal(await verify(), 'taken', 'without the key that was pinned');
  assert.equal(await verify({ SPEECHGATE_TRUST: JSON.stringify([{ ...pin, keyId: 'other' }]) }), 'wrong_key');
  await repin([nextPin]);
  assert.equal(await verify(), 'taken', 'under another pin');
});

test('a command refuses metadata that is older than an earlier command has seen', async (t) => {
  lying.lie = issued(2 * MINUTE_MS, -30_000, current);
  const { verify } = await pinned(t, [pin]);
  lying.lie = issued(3 * MINUTE_MS, 10 * MINUTE_MS, current);
  assert.equal(await verify(), 'replayed');
  lying.lie = issued(MINUTE_MS, 10 * MINUTE_MS, next, rotated);
  assert.equal(await verify(), 'taken');
  lying.lie = issued(0, 10 * MINUTE_MS, current);
  assert.equal(await verify(), 'taken', 'what is known holds while a retiring key signs');
});

test('a command keeps the metadata it knows where another replica signed earlier', async (t) => {
  lying.lie = issued(MINUTE_MS, 10 * MINUTE_MS, current);
  const { verify } = await pinned(t, [pin]);
  lying.lie = issued(2 * MINUTE_MS, 9 * MINUTE_MS, current);
  assert.equal(await verify(), 'taken');
});

test('the end of a pinned key is kept and honoured', async (t) => {
  lying.lie = undefined;
  const { connected, verify } = await pinned(t, [{ ...pin, validUntil: later(-1_000) }]);
  assert.equal(JSON.parse(connected.err).error.reason, 'expired_key');
  assert.equal(connected.code, 1);
  assert.equal(await verify(), undefined, 'and nothing was kept');
});
