import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { t, test } from 'tap';
import type { Config } from '../../src/config/config.ts';
import { audit } from '../../src/ledger/audit.ts';
import { pauseFlows } from '../../src/ledger/pauses.ts';
import { createLinkSigner } from '../../src/speech/store/link-token.ts';
import { booksClosed } from '../support/books.ts';
import type { Call } from '../support/gateway.ts';
import {
  assertOffered,
  BARE,
  CHARGED,
  concluded,
  detailsOf,
  FUNDS,
  follow,
  GET,
  loseAnswer,
  PENDING,
  PRICE,
  RESTORED,
  SECRET,
  sendUnread,
  startWithFunds,
} from '../support/lost-answer.ts';
import {
  balanceHeaders,
  fundedWallet,
  HELLO,
  type PrepaidGateway,
  startPrepaidGateway,
  TTS,
  withCredential,
  withHeaders,
} from '../support/prepaid.ts';
import { CAPTURE, recordStatements } from '../support/recorded-statements.ts';
import { body, ControlledStream, openAiError, silentMp3 } from '../support/stub-upstream.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { unguarded } from '../support/unguarded.ts';
import { until } from '../support/until.ts';

const HELLO_AUDIO = silentMp3(1000);
/** Of the tests that need no settings of their own. */
const { gateway } = await startWithFunds(t);

/** A wallet of its own, at the gateway whose upstream speaks for a second again. */
async function newWallet() {
  gateway.upstream.mode = body(HELLO_AUDIO);
  return fundedWallet(gateway, FUNDS);
}

/** More than kernels take of an answer that nobody reads. */
const LONG = silentMp3(600_000);

const CUTS: [string, (gateway: PrepaidGateway, call: Call, path: string) => Promise<void>][] = [
  [
    'during the synthesis',
    async (gateway, call, path) => {
      const drip = new ControlledStream();
      gateway.upstream.mode = drip.mode;
      const socket = await sendUnread(gateway.url, path, call);
      await drip.opened;
      socket.destroy();
      await drip.write(LONG);
      drip.end();
    },
  ],
  [
    'after the headers',
    async (gateway, call, path) => {
      const socket = await sendUnread(gateway.url, path, call);
      await once(socket, 'readable');
      socket.read(20);
      socket.destroy();
    },
  ],
  [
    'in the body',
    async (gateway, call, path) => {
      const socket = await sendUnread(gateway.url, path, call);
      await once(socket, 'readable');
      for (let read = 0; read < 1_000_000; ) {
        const bytes = socket.read();
        if (bytes) read += bytes.length;
        else await once(socket, 'readable');
      }
      socket.resetAndDestroy();
    },
  ],
];

for (const [when, cut] of CUTS) {
  test(`R60: a request cut ${when} is charged once, and its audio offered`, async (t) => {
    const { sign } = await newWallet();
    const before = gateway.upstream.requests.length;
    for (const [path, call] of [[TTS, await sign(TTS, HELLO)] as const, [GET, await sign(GET)] as const]) {
      gateway.upstream.mode = body(LONG);
      await cut(gateway, call, path);
      await assertOffered(gateway, call, LONG, path);
    }
    t.equal(gateway.upstream.requests.length - before, 2);
    t.strictSame(await audit(gateway.db), []);
  });
}

test('R60: only the identical request learns the state of the first', async (t) => {
  const { sign, wallet, balance } = await newWallet();
  const nonce = 'the-same-one';
  const call = await sign(TTS, HELLO, { nonce });
  t.equal((await gateway.call(TTS, call)).status, 200);
  await assertOffered(gateway, call, HELLO_AUDIO);
  const other = await gateway.call(TTS, { ...call, json: { text: 'Other words' } });
  t.strictSame([other.status, detailsOf(other).audio], [401, undefined], 'its headers with another body');
  const shouted = `0x${String(call.headers?.['x-x402-signature']).slice(2).toUpperCase()}`;
  t.ok(detailsOf(await gateway.call(TTS, withHeaders(call, { 'x-x402-signature': shouted }))).audio);
  for (const [path, other] of [
    [TTS, await sign(TTS, HELLO, { nonce, max: 999_999n })],
    [TTS, await sign(TTS, { method: 'POST', json: { text: 'Other words' } }, { nonce })],
    [GET, await sign(GET, {}, { nonce })],
  ] as const) {
    const refused = await gateway.call(path, other);
    t.strictSame([refused.status, detailsOf(refused)], [409, BARE]);
  }
  t.equal(await balance(), FUNDS - BigInt(PRICE));
  const stranger = await fundedWallet(gateway, FUNDS);
  const foreign = await withCredential(stranger.wallet, gateway.domain, TTS, HELLO, { nonce });
  t.equal((await gateway.call(TTS, withHeaders(foreign, { 'x-x402-account': wallet.address }))).status, 401);
  t.equal((await gateway.call(TTS, foreign)).status, 200, "another wallet's nonce is another one");
});

test('R60: the state of a failed synthesis goes from pending to restored', async (t) => {
  const { sign } = await newWallet();
  const drip = new ControlledStream();
  gateway.upstream.mode = drip.mode;
  const call = await sign(TTS, HELLO);
  const first = gateway.call(TTS, call);
  await drip.opened;
  const pending = await gateway.call(TTS, call);
  t.strictSame(detailsOf(pending), PENDING);
  t.strictSame(balanceHeaders(pending), [null, String(FUNDS - BigInt(PRICE))]);
  drip.end();
  t.equal((await first).status, 502);
  t.strictSame(detailsOf(await concluded(gateway, call)), RESTORED);
  gateway.upstream.mode = openAiError(500);
  const failed = await sign(TTS, HELLO);
  t.equal((await gateway.call(TTS, failed)).status, 502);
  const restored = await gateway.call(TTS, failed);
  t.strictSame(detailsOf(restored), RESTORED);
  t.match(restored.json.error.message, /new nonce/);
});

test('R60: an identical request learns the state of the first even after its expiry', async (t) => {
  const { sign } = await newWallet();
  const expiry = BigInt(Math.floor(Date.now() / 1000) + 2);
  const [spent, unspent] = [await sign(TTS, HELLO, { expiry }), await sign(TTS, HELLO, { expiry })];
  t.equal((await gateway.call(TTS, spent)).status, 200);
  await until(() => Date.now() / 1000 > Number(expiry));
  await assertOffered(gateway, spent, HELLO_AUDIO);
  const refused = await gateway.call(TTS, unspent);
  t.strictSame([refused.status, detailsOf(refused).field], [400, 'x-x402-expiry']);
  const forged = withHeaders(spent, { 'x-x402-max-amount': '7' });
  t.equal((await gateway.call(TTS, forged)).status, 400, 'its signature does not verify');
});

test('R60: other and later processes of the deployment offer the audio too', async (t) => {
  const env = { JOB_SIGNING_SECRET: SECRET, AUDIO_STORE: `file:${await temporaryFolder(t)}` };
  const { gateway, sign } = await startWithFunds(t, env);
  const call = await sign(TTS, HELLO);
  await loseAnswer(gateway.url, TTS, call);
  await assertOffered(await startPrepaidGateway(t, env, { databaseUrl: gateway.databaseUrl }), call, HELLO_AUDIO);
  await gateway.app.close();
  await assertOffered(await startPrepaidGateway(t, env, { databaseUrl: gateway.databaseUrl }), call, HELLO_AUDIO);
});

test('R60: charged audio stays available after a quote expires or the flow is paused', async (t) => {
  const { gateway, sign } = await startWithFunds(t, { QUOTE_TTL_SECONDS: '8' });
  const text = 'Hello world';
  const asked = { textLength: text.length, textSha256: createHash('sha256').update(text).digest('hex') };
  const quote = await gateway.call(`${TTS}/quote`, { method: 'POST', json: asked });
  const call = await sign(TTS, { method: 'POST', json: { quoteToken: quote.json.quoteToken, text } });
  await loseAnswer(gateway.url, TTS, call);
  await until(() => Date.now() > Date.parse(quote.json.expiresAt));
  await assertOffered(gateway, call, HELLO_AUDIO);
  const unspent = await sign(TTS, { method: 'POST', json: { quoteToken: quote.json.quoteToken, text } });
  t.equal((await gateway.call(TTS, unspent)).json.error.code, 'QUOTE_EXPIRED');
  await pauseFlows(gateway.db, ['prepaid'], { operator: 'me', reason: 'test' });
  await gateway.app.pauses.read();
  t.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 503);
  t.ok(detailsOf(await concluded(gateway, call)).audio);
});

test("R60: a repeat returns its state even at the wallet's limit of running requests", async (t) => {
  const adjust = (config: Config) => ({ ...config, unpaidWork: { ...config.unpaidWork, maxRunning: 1 } });
  const { gateway, sign } = await startWithFunds(t, {}, { adjust });
  const drip = new ControlledStream();
  gateway.upstream.mode = drip.mode;
  const call = await sign(TTS, HELLO);
  const first = gateway.call(TTS, call);
  await drip.opened;
  t.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 429);
  const again = await gateway.call(TTS, call);
  t.strictSame([again.status, detailsOf(again)], [409, PENDING]);
  drip.end();
  t.equal((await first).status, 502);
});

test('R60: a repeat is pending until the capture is known', async (t) => {
  const { sign } = await newWallet();
  const capture = recordStatements(t).holdBack(CAPTURE);
  const call = await sign(TTS, HELLO);
  t.equal((await gateway.call(TTS, call)).status, 200);
  await capture.held;
  t.strictSame(detailsOf(await gateway.call(TTS, call)), PENDING);
  capture.letGo();
  await assertOffered(gateway, call, HELLO_AUDIO);
});

test('R60: after 10 minutes the audio is gone, but the request is still known', async (t) => {
  const { gateway, sign } = await startWithFunds(t);
  const call = await sign(TTS, HELLO);
  t.equal((await gateway.call(TTS, call)).status, 200);
  const link = await assertOffered(gateway, call, HELLO_AUDIO);
  await unguarded(gateway.db, (trx) =>
    trx
      .updateTable('transfer')
      .set({ ended_at: new Date(Date.now() - 601_000) })
      .where('kind', '=', 'spend')
      .execute(),
  );
  t.equal((await follow(gateway.url, link)).status, 404);
  t.strictSame(detailsOf(await gateway.call(TTS, call)), CHARGED);
});

test('R60: a failing store is logged and leaves the request charged', async (t) => {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, 'file'), '');
  const env = { AUDIO_STORE: `file:${join(folder, 'file')}`, LOG_LEVEL: 'warn' };
  const { gateway, sign, balance } = await startWithFunds(t, env);
  const call = await sign(TTS, HELLO);
  t.equal((await gateway.call(TTS, call)).status, 200);
  await booksClosed(gateway.db);
  const again = await gateway.call(TTS, call);
  t.strictSame(detailsOf(again), CHARGED);
  t.match(again.json.error.message, /audio is not available now/);
  t.equal(await balance(), FUNDS - BigInt(PRICE));
  await until(() =>
    gateway.log.some(({ msg }) =>
      msg.startsWith(
        'failed to store a copy of the audio of a prepaid response, so a repeated request cannot fetch it',
      ),
    ),
  );
  t.strictSame(await audit(gateway.db), []);
});

test('R60: a signed link opens only its own audio', async (t) => {
  const { sign } = await newWallet();
  const call = await sign(TTS, HELLO);
  t.equal((await gateway.call(TTS, call)).status, 200);
  const link = new URL(await assertOffered(gateway, call, HELLO_AUDIO));
  const [, id = ''] = /audio\/(.+)$/.exec(link.pathname) ?? [];
  const later = new Date(Date.now() + 60_000);
  const status = async (sig: string | undefined, path = link.pathname) =>
    (await gateway.call(sig === undefined ? path : `${path}?sig=${sig}`)).status;
  const ofJob = await createLinkSigner('job-audio', [SECRET]).sign(id, later);
  const own = createLinkSigner('prepaid-audio', [SECRET]);
  const forged = await createLinkSigner('prepaid-audio', ['another secret of 32 bytes or more']).sign(id, later);
  const ofAnother = await own.sign('7c9e6679-7425-40de-944b-e07fc1f90ae7', later);
  const past = await own.sign(id, new Date(Date.now() - 1000));
  for (const sig of [undefined, '', ofJob, forged, ofAnother, past]) t.equal(await status(sig), 401, String(sig));
  const good = await own.sign(id, later);
  t.equal(await status(good), 200);
  t.equal(await status(good, `/tts/jobs/${id}/audio`), 401, 'a job is opened by a sig of its own');
  t.equal(await status(undefined, '/x402/tts/audio/none'), 404);
  const part = await follow(gateway.url, link.href, { headers: { range: 'bytes=0-383' } });
  t.strictSame([part.status, part.bytes.length], [206, 384]);
  t.equal((await follow(gateway.url, link.href, { headers: { range: 'bytes=99999999-' } })).status, 416);
  t.equal((await follow(gateway.url, link.href, { method: 'HEAD' })).bytes.length, 0);
});

test('R60: without signed links, the id alone opens the audio', async (t) => {
  const { gateway, sign } = await startWithFunds(t, { JOB_SIGNING_SECRET: '' });
  const call = await sign(TTS, HELLO);
  t.equal((await gateway.call(TTS, call)).status, 200);
  t.match(await assertOffered(gateway, call, HELLO_AUDIO), /\/x402\/tts\/audio\/[0-9a-f-]{36}$/);
  t.equal((await gateway.call('/x402/tts/audio/7c9e6679-7425-40de-944b-e07fc1f90ae7')).status, 404);
});

test('R60: a repeat whose audio cannot be looked up claims no refund', async (t) => {
  const { sign } = await newWallet();
  const call = await sign(TTS, HELLO);
  t.equal((await gateway.call(TTS, call)).status, 200);
  await booksClosed(gateway.db);
  recordStatements(t).loseAnswer(/ended_at \+ make_interval/);
  const again = await gateway.call(TTS, call);
  t.strictSame([again.status, again.json.error.code], [503, 'CONFIG_ERROR']);
  t.strictSame(balanceHeaders(again), [null, null]);
  t.strictSame(detailsOf(again).payment, CHARGED.payment);
});
