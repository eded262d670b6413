/** What commands keep for the next one: the keys of a service that they followed, and purchases without an end. */
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Test, t, test } from 'tap';
import { generatePrivateKey } from 'viem/accounts';
import type { PinnedKey } from '../../../src/callers/client/index.ts';
import type { SigningKey } from '../../../src/config/signing-keys.ts';
import { callerCommand } from '../../support/caller-command.ts';
import { startChild } from '../../support/child.ts';
import { pinsOf } from '../../support/client.ts';
import { startGateway } from '../../support/gateway.ts';
import { ofMetadata, type Payload, startTamperingProxy, type Tamper } from '../../support/tampering-proxy.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const proxy = await startTamperingProxy(t);
const gateway = await startGateway(t, { BASE_URL: proxy.url });
proxy.target = gateway.url;
const [current, next] = gateway.config.signingKeys as [SigningKey, SigningKey];
const [pin, nextPin] = pinsOf(gateway) as [PinnedKey, PinnedKey];
const later = (ms: number) => new Date(Date.now() + ms).toISOString();
const MINUTE_MS = 60_000;

/** Metadata that was issued so long ago, valid as long as it is said. */
const issued = (
  agoMs: number,
  validMs: number,
  key: SigningKey,
  change: (payload: Payload) => void = () => {},
): Tamper =>
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
  const folder = await temporaryFolder(t);
  const env = { SPEECHGATE_CONFIG_DIR: join(folder, 'settings') };
  const pin = async (keys: readonly PinnedKey[]) => {
    await writeFile(join(folder, 'keys.json'), JSON.stringify(keys));
    return callerCommand(env, 'connect', proxy.url, '--trust', join(folder, 'keys.json'), '--json');
  };
  /** What a command says of the metadata: `taken`, or why it was refused. */
  const verify = async (more: Record<string, string> = {}) => {
    const { code, err } = await callerCommand({ ...env, ...more }, 'verify-metadata', '--json');
    return code === 0 ? 'taken' : JSON.parse(err).error.reason;
  };
  return { pin, verify, connected: await pin(keys) };
}

test('a command trusts the keys that earlier commands followed in a rotation', async (t) => {
  proxy.tamper = issued(5_000, MINUTE_MS, current);
  const { verify, pin: repin } = await pinned(t, [pin]);
  proxy.tamper = issued(4_000, MINUTE_MS, next, rotated);
  t.equal(await verify(), 'taken');
  proxy.tamper = issued(3_000, MINUTE_MS, next, ({ trust }) => {
    rotated({ trust } as Payload);
    trust.keys.shift();
  });
  t.equal(await verify(), 'taken', 'without the key that was pinned');
  t.equal(await verify({ SPEECHGATE_TRUST: JSON.stringify([{ ...pin, keyId: 'other' }]) }), 'wrong_key');
  await repin([nextPin]);
  t.equal(await verify(), 'taken', 'under another pin');
});

test('a command refuses metadata older than an earlier command has seen, but keeps what holds', async (t) => {
  proxy.tamper = issued(2 * MINUTE_MS, -30_000, current);
  const { verify } = await pinned(t, [pin]);
  proxy.tamper = issued(3 * MINUTE_MS, 10 * MINUTE_MS, current);
  t.equal(await verify(), 'replayed');
  proxy.tamper = issued(MINUTE_MS, 10 * MINUTE_MS, next, rotated);
  t.equal(await verify(), 'taken');
  proxy.tamper = issued(0, 10 * MINUTE_MS, current);
  t.equal(await verify(), 'taken', 'what is known holds while a retiring key signs');
  proxy.tamper = issued(2 * MINUTE_MS, 9 * MINUTE_MS, current);
  t.equal(await verify(), 'taken', 'and while a replica serves older metadata');
});

test('an expired pinned key is refused, and nothing is stored', async (t) => {
  proxy.tamper = undefined;
  const { connected, verify } = await pinned(t, [{ ...pin, validUntil: later(-1_000) }]);
  t.strictSame([JSON.parse(connected.err).error.reason, connected.code], ['expired_key', 1]);
  t.equal(await verify(), undefined, 'and nothing was kept');
});

// A deposit that is killed after its signature left is not forgotten, and not paid twice.

const CREDITED = { address: '0x1', balanceMicroUsd: 1_000_000, creditedMicroUsd: 1_000_000, alreadyCredited: false };

test('the next deposit finishes a deposit whose process was killed', async (t) => {
  const payments: unknown[] = [];
  let isAnswered = false;
  proxy.tamper = async (proxied, _path, headers) => {
    if (headers['payment-signature'] === undefined) return;
    payments.push(headers['payment-signature']);
    if (!isAnswered) await new Promise(() => {});
    Object.assign(proxied, {
      status: 200,
      json: CREDITED,
      headers: new Headers({ 'content-type': 'application/json' }),
    });
  };
  const folder = await temporaryFolder(t);
  const env = {
    SPEECHGATE_CONFIG_DIR: folder,
    SPEECHGATE_URL: proxy.url,
    SPEECHGATE_WALLET_KEY: generatePrivateKey(),
    SPEECHGATE_TRUST: JSON.stringify(pinsOf(gateway)),
  };
  const child = startChild(t, 'src/speechgate.ts', env, ['deposit', '1.00']);
  await until(async () => payments.length > 0);
  await child.stop('SIGKILL');
  const { purchases } = JSON.parse((await callerCommand(env, 'resume', '--list', '--json')).out);
  t.strictSame([purchases.length, purchases[0]?.kind], [1, 'deposit']);
  isAnswered = true;
  const again = await callerCommand(env, 'deposit', '1.00', '--json');
  t.equal(again.code, 0, again.err);
  const told = JSON.parse(again.out);
  t.strictSame([told.outcome, told.earlier, told.identifier], ['bought', true, purchases[0].identifier]);
  t.strictSame([...new Set(payments)].length, 1, 'the identical payment');
  t.strictSame(await readdir(join(folder, 'pending')), []);
  t.match((await callerCommand(env, 'deposit', '1.00')).out, /^1\.000000 USD deposited/);
  t.equal(new Set(payments).size, 2);
  t.strictSame(await readdir(join(folder, 'pending')), []);
});
