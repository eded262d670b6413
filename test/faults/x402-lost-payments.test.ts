import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { PaymentPayload } from '@x402/core/types';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import type { Hex, LocalAccount } from 'viem';
import type { X402Config } from '../../src/config/x402-settings.ts';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { decodeEnvelope } from '../../src/payments/x402/envelope.ts';
import { claimOf, requestHash } from '../../src/payments/x402/payment-lookup.ts';
import { openPayments } from '../../src/payments/x402/resolver.ts';
import { recordTransfer } from '../../src/payments/x402/unrecorded-transfers.ts';
import { testChain, wallet } from '../support/chain.ts';
import { testDatabase } from '../support/database.ts';
import { DEPOSIT, DEPOSIT_PATH, depositOf, land, mineSteadily, paymentStates, withTerms } from '../support/deposit.ts';
import { type FaultSource, invalid, type VerifyFault } from '../support/facilitator-faults.ts';
import type { Call, Reply } from '../support/gateway.ts';
import { startRpcNode } from '../support/rpc-node.ts';
import { ControlledStream, mp3, silentMp3 } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { unguarded } from '../support/unguarded.ts';
import { until } from '../support/until.ts';
import {
  challengeOf,
  HELLO,
  PRICE,
  payFor,
  sign,
  startX402Gateway,
  timesPaid,
  withPayment,
  type X402Gateway,
} from '../support/x402.ts';

const { chain, skip } = await testChain();
const TTS = '/x402/tts';

const REQUESTS: readonly [name: string, path: string, call: Call, amountMicroUsd: number][] = [
  ['POST', TTS, HELLO, Number(PRICE)],
  ['GET', `${TTS}?text=Hello%20world`, {}, Number(PRICE)],
  ['deposit', DEPOSIT_PATH, depositOf(DEPOSIT), DEPOSIT],
];

interface Repetition {
  /** It comes to a gateway without a speech provider. */
  readonly isUnable?: true;
  /** What goes wrong since the payment was made. */
  readonly arrange?: (gateway: X402Gateway) => void;
  readonly terms?: () => { readonly validBefore: bigint };
  /** How the payload is written now. */
  readonly change?: (payload: PaymentPayload) => PaymentPayload;
}

const secondsAhead = (seconds: number) => BigInt(Math.floor(Date.now() / 1000) + seconds);
const verifyAnswers = (reason: string): Repetition => ({
  arrange: ({ facilitator }) => facilitator.faults.verify(invalid(`invalid_exact_evm_${reason}`)),
});
const offerChanged = ({ accepted, ...payload }: PaymentPayload): PaymentPayload => ({
  ...payload,
  accepted: { ...accepted, maxTimeoutSeconds: 60 },
});

/** Refusals of a new payment that say nothing was charged. */
const REPETITIONS: Readonly<Record<string, Repetition>> = {
  'an expired authorization': { terms: () => ({ validBefore: secondsAhead(14) }) },
  'an older offer': { change: offerChanged },
  'an invalid signature': {
    change: ({ payload, ...rest }) => ({ ...rest, payload: { ...payload, signature: `0x${'12'.repeat(65)}` } }),
  },
  'too low a balance': verifyAnswers('insufficient_balance'),
  'a failed simulation': verifyAnswers('transaction_simulation_failed'),
  'no facilitator': { arrange: ({ facilitator }) => facilitator.faults.verify('error') },
  'no speech provider': { isUnable: true },
};

/** A payment that the chain has, and the database has lost. */
async function lostPayment(
  gateway: X402Gateway,
  payer: LocalAccount,
  { path = TTS, call = HELLO, terms }: { path?: string; call?: Call } & Pick<Repetition, 'terms'> = {},
): Promise<PaymentPayload> {
  const payload = await sign(payer, await challengeOf(gateway, path, call));
  const signed = terms ? await withTerms(payer, payload, terms()) : payload;
  await land(chain, signed);
  return signed;
}

function nodeOf(t: Test, { config, db }: X402Gateway) {
  const { asset } = config.x402 as X402Config;
  const { reservations, chain: node } = openPayments(db, asset, [chain.rpcUrl]);
  t.teardown(() => node.close());
  return { asset, node, reservations };
}

const paymentOf = ({ json }: Reply) => json.error.details.payment;

test('R64: a lost payment is reported as unknown whatever a repetition is refused for', { skip }, async (t) => {
  const quoting = await startX402Gateway(t, chain);
  const unable = await startX402Gateway(t, chain, { X402_PAY_TO: quoting.payTo, SPEECH_BASE_URL: '' });
  for (const [name, { isUnable, arrange, terms, change }] of Object.entries(REPETITIONS)) {
    for (const [request, path, call, amountMicroUsd] of REQUESTS) {
      const payer = await wallet(chain.client, BigInt(amountMicroUsd));
      const payload = await lostPayment(quoting, payer, { path, call, ...(terms && { terms }) });
      const gateway = isUnable ? unable : quoting;
      arrange?.(gateway);
      const reply = await gateway.call(path, withPayment(call, change?.(payload) ?? payload));
      gateway.facilitator.faults.clear();
      const { message, details } = reply.json.error;
      t.strictSame(details.payment, { state: 'unknown', amountMicroUsd }, `${request}: ${name}: ${reply.text}`);
      t.match(message, /Ask the operator before you sign another one/);
      t.notMatch(message, /not charged/i);
      t.strictSame(await paymentStates(gateway), []);
      t.equal(await timesPaid(chain, payer), 1);
    }
  }
});

test('R64: a lost payment under the identifier of another one is reported as unknown', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const lost = await lostPayment(gateway, payer);
  const { reply, payload } = await payFor(gateway, payer);
  t.equal(reply.status, 200, reply.text);
  const repeated = await gateway.call(TTS, withPayment(HELLO, { ...lost, extensions: payload.extensions }));
  t.strictSame(paymentOf(repeated), { state: 'unknown', amountMicroUsd: Number(PRICE) }, repeated.text);
});

test('R64: a payment of which only the reservation is left is reported as unknown', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, PRICE);
  const terms = () => ({ validBefore: secondsAhead(14) });
  const paid = withPayment(HELLO, await lostPayment(gateway, payer, { terms }));
  const envelope = decodeEnvelope(String(paid.headers?.['payment-signature']));
  const { reservations } = nodeOf(t, gateway);
  const bytes = Buffer.from(JSON.stringify(HELLO.json));
  await reservations.reserve({
    purpose: 'speech',
    identifier: envelope.identifier,
    requestHash: requestHash({ method: 'POST', url: TTS, bytes, envelope } as never),
    claim: claimOf(envelope),
    headBlock: 0n,
    traceId: randomUUID(),
  });
  await sql`update x402_payment set lease_until = now() - interval '1 second'`.execute(gateway.db);
  const reply = await gateway.call(TTS, paid);
  t.strictSame(paymentOf(reply), { state: 'unknown', amountMicroUsd: Number(PRICE) }, reply.text);
  t.match(reply.json.error.message, /Ask the operator/);
});

for (const [purpose, path, call] of [
  ['speech', TTS, HELLO],
  ['deposit', DEPOSIT_PATH, depositOf(DEPOSIT)],
] as const) {
  test(`R64: a lost payment for ${purpose} that was booked later is reported as charged`, { skip }, async (t) => {
    const gateway = await startX402Gateway(t, chain);
    const { asset, node } = nodeOf(t, gateway);
    const lost = await lostPayment(gateway, await wallet(chain.client, BigInt(DEPOSIT)), { path, call });
    await chain.client.mine({ blocks: 1 });
    const received = await node.received([gateway.payTo.toLowerCase() as Hex], new Date(0));
    for (const { nonce, ...transfer } of received) {
      assert.ok(nonce);
      await recordTransfer(gateway.db, asset, { ...transfer, nonce }, purpose);
    }
    const { status, json } = await gateway.call(path, withPayment(call, offerChanged(lost)));
    t.strictSame([status, json.error.details.payment.state], [409, 'charged'], json.error.message);
    t.equal(json.error.details.payment.transaction, received[0]?.transaction);
    t.strictSame(await audit(gateway.db), []);
  });
}

test('R23: while no node answers, the database decides what a refusal says', { skip }, async (t) => {
  const node = await startRpcNode(t, chain.rpcUrl);
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: node.url });
  const payload = await sign(await wallet(chain.client, PRICE), await challengeOf(gateway, TTS, HELLO));
  const call = withPayment(HELLO, offerChanged(payload));
  for (const falsehood of [node.falsehood, () => ({ status: 503 })]) {
    node.falsehood = falsehood;
    const reply = await gateway.call(TTS, call);
    t.strictSame([reply.json.error.details.error, paymentOf(reply).state], ['accepted_is_no_offer', 'not_charged']);
  }
});

/** How another request gets the payment of one that still runs. */
const TAKEN: Readonly<Record<string, (gateway: X402Gateway) => Promise<unknown>>> = {
  'a failover lost the row': ({ db }) => unguarded(db, (trx) => sql`delete from x402_payment`.execute(trx)),
  'the lease expired': ({ db }) => sql`update x402_payment set lease_until = now() - interval '1 second'`.execute(db),
};

/** Verifications that wait to be answered, in the order of arrival. */
function heldVerifies() {
  const answers: ((fault: VerifyFault | undefined) => void)[] = [];
  const faults: FaultSource = {
    nextVerify: () => new Promise((resolve) => answers.push(resolve)),
    nextSettle: () => undefined,
  };
  return {
    faults,
    arrived: (count: number) => until(() => answers.length === count),
    answer: (call: number, fault?: VerifyFault) => answers[call - 1]?.(fault),
  };
}

function assertPending({ status, json, text }: Reply, amountMicroUsd: number) {
  assert.deepEqual([status, json.error.code], [409, 'PAYMENT_REPLAY_PENDING'], text);
  assert.deepEqual(json.error.details.payment, { state: 'unknown', amountMicroUsd });
  assert.doesNotMatch(json.error.message, /not charged\./);
}

const signed = async (gateway: X402Gateway, path: string, call: Call, amount: bigint) => {
  const payer = await wallet(chain.client, amount);
  return { payer, paid: withPayment(call, await sign(payer, await challengeOf(gateway, path, call))) };
};

for (const [reason, take] of Object.entries(TAKEN)) {
  test(`R64: ${reason}: a failure is pending while repeated`, { skip }, async (t) => {
    const gateway = await startX402Gateway(t, chain);
    const { payer, paid } = await signed(gateway, TTS, HELLO, PRICE);
    const [failing, speaking] = [new ControlledStream(), new ControlledStream()];
    gateway.upstream.mode = failing.mode;
    const first = gateway.call(TTS, paid);
    await failing.opened;
    await take(gateway);
    gateway.upstream.mode = speaking.mode;
    const second = gateway.call(TTS, paid);
    await speaking.opened;
    failing.reset();
    assertPending(await first, Number(PRICE));
    await speaking.write(silentMp3(500));
    speaking.end();
    t.equal((await second).status, 200);
    const again = await gateway.call(TTS, paid);
    t.strictSame([again.status, again.headers.get('x-idempotent-replay')], [200, 'true']);
    t.equal(await timesPaid(chain, payer), 1);
    t.strictSame(await audit(gateway.db), []);
  });

  for (const [request, path, call, amountMicroUsd] of REQUESTS.filter(([name]) => name !== 'GET')) {
    test(`R64: ${request}: ${reason}: a refusal is pending while repeated`, { skip }, async (t) => {
      const verifies = heldVerifies();
      const gateway = await startX402Gateway(t, chain, {}, { facilitator: { faults: verifies.faults } });
      const { payer, paid } = await signed(gateway, path, call, BigInt(amountMicroUsd));
      const first = gateway.call(path, paid);
      await verifies.arrived(1);
      await take(gateway);
      const second = gateway.call(path, paid);
      await verifies.arrived(2);
      verifies.answer(1, invalid('invalid_exact_evm_transaction_simulation_failed'));
      assertPending(await first, amountMicroUsd);
      mineSteadily(t, chain);
      verifies.answer(2);
      t.equal((await second).status, 200);
      t.equal(await timesPaid(chain, payer), 1);
      t.strictSame(await audit(gateway.db), []);
    });
  }
}

test('R64: failed speech is pending while the database is unavailable', { skip }, async (t) => {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const db = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const gateway = await startX402Gateway(t, chain, {}, { databaseUrl: proxy.url });
  const { payer, paid } = await signed(gateway, TTS, HELLO, PRICE);
  const failing = new ControlledStream();
  gateway.upstream.mode = failing.mode;
  const first = gateway.call(TTS, paid);
  await failing.opened;
  proxy.cut();
  failing.reset();
  assertPending(await first, Number(PRICE));
  proxy.restore();
  await sql`update x402_payment set lease_until = now() - interval '1 second'`.execute(db);
  gateway.upstream.mode = mp3();
  await until(async () => (await gateway.call(TTS, paid)).status === 200);
  t.equal(await timesPaid(chain, payer), 1);
});
