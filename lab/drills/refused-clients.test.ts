import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type Test, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { audit } from '../../src/ledger/audit.ts';
import { booksClosed } from '../../test/support/books.ts';
import { testDatabase } from '../../test/support/database.ts';
import type { Call, Reply } from '../../test/support/gateway.ts';
import {
  type Depositor,
  fundedWallet,
  HELLO,
  type PrepaidGateway,
  startPrepaidGateway,
  TTS,
  withCredential,
  withHeaders,
} from '../../test/support/prepaid.ts';
import { connectRaw, requestBytes } from '../../test/support/raw-http.ts';
import { startTcpProxy } from '../../test/support/tcp-proxy.ts';
import { prepaidSigner } from '../signers/prepaid-signer.ts';

const LIMIT = 3;

/** A gateway that counts what it sends to its database. Each client is an address behind a trusted proxy. */
async function startCounting(t: Test, edgeLimit = LIMIT) {
  const database = await startTcpProxy(t, (await testDatabase(t)).url, /paused_flow/);
  const env = { TRUST_PROXY: '127.0.0.0/8', EDGE_RATE_LIMIT_MAX: String(edgeLimit) };
  const gateway = await startPrepaidGateway(t, env, { databaseUrl: database.url });
  const from = (address: string, call: Call): Call => withHeaders(call, { 'x-forwarded-for': address });
  const useUp = async (address: string) => {
    for (let count = 0; count < edgeLimit; count += 1) {
      assert.equal((await gateway.call('/', from(address, {}))).status, 200);
    }
  };
  const sentWhile = async (work: () => Promise<unknown>) => {
    const before = database.sent;
    await work();
    return database.sent - before;
  };
  return { gateway, from, useUp, sentWhile };
}

const isRefusal = ({ status, headers }: Reply) => status === 429 && headers.get('x-ratelimit-scope') === 'edge';

/** Credentials that fail, each for a reason of its own. */
const failures = async (gateway: PrepaidGateway, { wallet, sign }: Depositor): Promise<[string, string, Call][]> => {
  const stranger = await fundedWallet(gateway, 0n);
  const foreign = { ...gateway.domain, chainId: 1 };
  const get = `${TTS}?text=Hello`;
  return [
    ['a bad signature', TTS, await withCredential(wallet, foreign, TTS, HELLO)],
    ['no signature at all', TTS, withHeaders(await sign(TTS, HELLO), { 'x-x402-signature': 'junk' })],
    ['a wallet that never deposited', TTS, await stranger.sign(TTS, HELLO)],
    ['an expiry that is past', TTS, await sign(TTS, HELLO, { expiry: 1n })],
    ['a missing header', TTS, withHeaders(await sign(TTS, HELLO), { 'x-x402-nonce': undefined })],
    [
      'a max amount that is no uint256',
      TTS,
      withHeaders(await sign(TTS, HELLO), { 'x-x402-max-amount': String(2n ** 256n) }),
    ],
    ['no text', TTS, { ...(await sign(TTS, HELLO)), json: { text: '' } }],
    ['an unknown model', TTS, await sign(TTS, { method: 'POST', json: { text: 'Hello', model: 'unknown' } })],
    ['another content type', TTS, withHeaders(await sign(TTS, HELLO), { 'content-type': 'text/plain' })],
    ['two flows', get, withHeaders(await sign(get), { 'payment-signature': 'e30=' })],
  ];
};

test('R48: over the edge limit, a failed credential bars its address from the database', async (t) => {
  const { gateway, from, useUp, sentWhile } = await startCounting(t);
  const payer = await fundedWallet(gateway, 1_000_000n);
  for (const [index, [what, path, call]] of (await failures(gateway, payer)).entries()) {
    const address = `192.0.2.${index + 1}`;
    await useUp(address);
    t.equal((await gateway.call(path, from(address, await payer.sign(TTS, HELLO)))).status, 200, 'nothing failed yet');
    await booksClosed(gateway.db);
    t.ok(isRefusal(await gateway.call(path, from(address, call))), what);
    const honest = await payer.sign(TTS, HELLO);
    const sent = await sentWhile(async () => {
      for (const repeated of [call, honest, honest]) {
        assert.ok(isRefusal(await gateway.call(path, from(address, repeated))), what);
      }
      const { socket, answers } = await connectRaw(gateway.url);
      answers.catch(() => undefined);
      const [head] = requestBytes(TTS, from(address, honest)).split('\r\n\r\n');
      socket.write(`${head}\r\n\r\n`);
      const [answer] = (await once(socket, 'data')) as [Buffer];
      assert.match(answer.toString(), /^HTTP\/1\.1 429 /, 'answered while the body is still to come');
      socket.destroy();
    });
    t.equal(sent, 0, what);
  }
  t.strictSame(await gateway.db.selectFrom('rate_window').select('key').execute(), []);
  t.strictSame(await audit(gateway.db), []);
});

test('a failure within the limit counts beyond it until a credential verifies', async (t) => {
  const { gateway, from, sentWhile } = await startCounting(t);
  const payer = await fundedWallet(gateway, 1_000_000n);
  const forged = await withCredential(payer.wallet, { ...gateway.domain, chainId: 1 }, TTS, HELLO);
  const own = `/x402/accounts/${payer.wallet.address}`;
  const [speak, read] = [await payer.sign(TTS, HELLO), await payer.sign(own)];
  const call = async (address: string, path: string, signed: Call) =>
    (await gateway.call(path, from(address, signed))).status;
  t.strictSame(
    [await call('192.0.2.1', '/', {}), await call('192.0.2.1', '/', {}), await call('192.0.2.1', TTS, forged)],
    [200, 200, 401],
  );
  t.equal(await sentWhile(async () => assert.equal(await call('192.0.2.1', TTS, speak), 429)), 0);
  t.strictSame(
    [await call('192.0.2.2', '/', {}), await call('192.0.2.2', TTS, forged), await call('192.0.2.2', own, read)],
    [200, 401, 200],
  );
  t.equal(await call('192.0.2.2', TTS, speak), 200, 'a balance that was shown to its owner is a verified credential');
});

test('of 100 first tries at once over the edge limit, only a few reach the database', async (t) => {
  const { gateway, from, useUp, sentWhile } = await startCounting(t);
  await useUp('192.0.2.1');
  const terms = { nonce: 'n', expiry: BigInt(Math.floor(Date.now() / 1000) + 100), max: 1000n };
  const calls = Array.from({ length: 100 }, () => {
    const key = generatePrivateKey();
    const sign = prepaidSigner(privateKeyToAccount(key).address, key, gateway.domain);
    return from('192.0.2.1', sign(`${TTS}?text=Hello`, {}, terms));
  });
  const sent = await sentWhile(async () => {
    const replies = await Promise.all(calls.map((call) => gateway.call(`${TTS}?text=Hello`, call)));
    assert.ok(replies.every(isRefusal));
  });
  t.ok(sent > 0 && sent < 40, `${sent} messages to the database`);
});

test('an address over the edge limit is served as long as its credentials verify', async (t) => {
  const { gateway, from, useUp } = await startCounting(t);
  const { sign, balance } = await fundedWallet(gateway, 198n * 11n);
  await useUp('192.0.2.1');
  const speak = async () => gateway.call(TTS, from('192.0.2.1', await sign(TTS, HELLO)));
  t.equal((await speak()).status, 200);
  const replies = await Promise.all(Array.from({ length: 10 }, speak));
  t.strictSame([...new Set(replies.map(({ status }) => status))], [200]);
  t.equal(await balance(), 0n);
});
