/** A gateway whose clock is an hour wrong, beside another one, a database, a chain and a facilitator at the right time. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../../test/support/chain.ts';
import { testCheckout } from '../../test/support/checkout.ts';
import { withTerms } from '../../test/support/deposit.ts';
import { type Gateway, send } from '../../test/support/gateway.ts';
import { startGatewayProcess } from '../../test/support/gateway-process.ts';
import { missingProgram } from '../../test/support/missing-program.ts';
import { balanceHeaders, domainOf, fundedWallet, HELLO, TTS } from '../../test/support/prepaid.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import {
  challengeOf,
  PRICE,
  payFor,
  QUOTE_SECRET,
  sign,
  startX402Gateway,
  timesPaid,
  withPayment,
} from '../../test/support/x402.ts';

const { chain, skip: withoutChain } = await testChain();
const skip = withoutChain || (missingProgram('faketime', '--version') ?? false);

const HOUR = 3_600;
const FUNDS = 100_000n;
const TEXT = 'Hello world';
const QUOTED = { textLength: TEXT.length, textSha256: createHash('sha256').update(TEXT).digest('hex') };

/** The clock of one process, where Debian's package faketime is installed. The monotonic clock stays true. */
const clockEnv = (seconds: number) => ({
  LD_PRELOAD: '/usr/$LIB/faketime/libfaketimeMT.so.1',
  FAKETIME: `${seconds < 0 ? '' : '+'}${seconds}`,
  FAKETIME_DONT_FAKE_MONOTONIC: '1',
});

/** @param seconds by which the one gateway is ahead of all the rest */
async function startPair(t: Test, seconds: number) {
  const folder = await temporaryFolder(t);
  const checkout = await testCheckout(t);
  const env = { AUDIO_STORE: `file:${folder}/audio`, ...checkout.env };
  const right = await startX402Gateway(t, chain, env);
  const { url } = await startGatewayProcess(t, {
    ...{
      ...env,
      ...clockEnv(seconds),
      DATABASE_URL: right.databaseUrl,
      BASE_URL: right.config.baseUrl,
      DATA_DIR: folder,
    },
    ...{ SPEECH_BASE_URL: right.upstream.url, QUOTE_SECRET, LOG_LEVEL: 'warn', SPEECH_TIMEOUT_MS: '10000' },
    ...{ X402_PAY_TO: right.payTo, X402_FACILITATOR_URL: right.facilitator.url, X402_RPC_URL: chain.rpcUrl },
  });
  const wrong: Pick<Gateway, 'call'> = { call: (path, call) => send(url, path, call) };
  const ahead = Date.parse((await wrong.call('/livez')).headers.get('date') ?? '') - Date.now();
  assert.ok(Math.abs(ahead / 1_000 - seconds) < 60, `its clock is ${ahead} ms ahead`);
  return { right, wrong };
}

for (const seconds of [HOUR, -HOUR]) {
  const name = seconds > 0 ? 'ahead' : 'behind';
  test(`a gateway with its clock an hour ${name} accepts only valid payments`, {
    skip,
  }, async (t) => {
    const { right, wrong } = await startPair(t, seconds);
    const spoken = () => right.upstream.requests.length;

    const account = await right.fund(500);
    const speech = { headers: { 'x-credit-account': account } };
    t.equal((await wrong.call('/tts?text=Hello+world', speech)).status, 200);
    t.equal(await right.balance(account), 5_000_000n - PRICE);

    const prepaid = await fundedWallet({ ...right, domain: domainOf(right.payTo) }, FUNDS);
    const signed = await prepaid.sign(TTS, HELLO);
    const reply = await wrong.call(TTS, signed);
    t.strictSame([reply.status, ...balanceHeaders(reply)], [200, String(PRICE), String(FUNDS - PRICE)]);
    for (const gateway of [wrong, right]) {
      const again = await gateway.call(TTS, signed);
      t.strictSame([again.status, again.json.error.code], [409, 'PREPAID_NONCE_REPLAYED']);
    }
    // In time by the wrong clock alone.
    const expiry = BigInt(Math.floor(Date.now() / 1000) + seconds + 100);
    const late = await wrong.call(TTS, await prepaid.sign(TTS, HELLO, { expiry }));
    t.strictSame([late.status, late.json.error.details.field], [400, 'x-x402-expiry']);
    t.equal(await prepaid.balance(), FUNDS - PRICE);
    t.equal(spoken(), 2);

    const payer = await wallet(chain.client, 10n * PRICE);
    const payload = await sign(payer, await challengeOf(wrong, TTS, HELLO));
    const paid = withPayment(HELLO, payload);
    const untimely = await wrong.call(TTS, paid);
    const reason = seconds > 0 ? 'authorization_expires_too_soon' : 'authorization_valid_for_too_long';
    t.strictSame(
      [untimely.status, untimely.json.error.code, untimely.json.error.details.error],
      [402, 'PAYMENT_REQUIRED', reason],
    );
    // In time by the wrong clock alone: those who know better refuse it.
    const now = BigInt(Math.floor(Date.now() / 1000) + seconds);
    const shifted = await withTerms(payer, payload, { validAfter: now - 60n, validBefore: now + 200n });
    const refused = await wrong.call(TTS, withPayment(HELLO, shifted));
    t.strictSame([refused.status, refused.json.error.code], [402, 'PAYMENT_REQUIRED'], refused.text);
    t.equal(await timesPaid(chain, payer), 0);
    t.equal(await right.revenue(), 0n);
    // What it refused the other one takes, and what was paid there it repeats.
    t.equal((await right.call(TTS, paid)).status, 200);
    const replayed = await wrong.call(TTS, paid);
    t.strictSame([replayed.status, replayed.headers.get('x-idempotent-replay')], [200, 'true']);
    t.equal(await timesPaid(chain, payer), 1);

    const quote = async (gateway: Pick<Gateway, 'call'>) =>
      (await gateway.call('/x402/tts/quote', { method: 'POST', json: QUOTED })).json.quoteToken as string;
    const order = async (gateway: Pick<Gateway, 'call'>) => ({
      method: 'POST',
      json: { quoteToken: await quote(gateway), text: TEXT },
    });
    // Each judges a quote by its own clock: the one that is ahead holds those of the other for expired, and gives longer ones.
    const [early, current] = seconds > 0 ? [right, wrong] : [wrong, right];
    const expired = await current.call(TTS, await order(early));
    t.equal(expired.json.error.code, 'QUOTE_EXPIRED', expired.text);
    const lasting = await order(current);
    const quoted = await payFor(early, payer, lasting);
    t.equal(quoted.reply.status, seconds > 0 ? 200 : 402, quoted.reply.text);
    if (seconds < 0) t.equal((await right.call(TTS, quoted.paid)).status, 200);
    t.equal(await timesPaid(chain, payer), 2);

    t.equal(await right.revenue(), 2n * PRICE);
    t.equal(spoken(), 4, 'nothing was spoken that was not paid');
    const { rows } = await sql`select from transfer where state = 'pending'
      union all select from x402_payment where state <> 'settled'`.execute(right.db);
    t.equal(rows.length, 0, 'nothing is held');
    t.strictSame(await audit(right.db), []);
  });
}
