import { mock } from 'node:test';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { v7 as uuidv7 } from 'uuid';
import { loadCatalog } from '../../src/config/catalog.ts';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { isAudioNeeded, paymentAudioKey } from '../../src/payments/x402/payment-states.ts';
import { expiredPaymentAudio } from '../../src/reconcile/expired-audio.ts';
import { inferPurpose } from '../../src/reconcile/received.ts';
import { isPrice, priceMicroUsd } from '../../src/speech/price.ts';
import type { AudioStore } from '../../src/speech/store/audio-store.ts';
import { openAudioStore } from '../../src/speech/store/open-store.ts';
import { testChain, wallet } from '../support/chain.ts';
import { testDatabase } from '../support/database.ts';
import { payUnknown } from '../support/deposit.ts';
import { refused } from '../support/facilitator-faults.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { unguarded } from '../support/unguarded.ts';
import {
  challengeOf,
  HELLO,
  PRICE,
  payFor,
  sign,
  startX402Gateway,
  withPayment,
  type X402Gateway,
} from '../support/x402.ts';

const { chain, skip } = await testChain();

const stateOf = async ({ db }: X402Gateway) =>
  (await db.selectFrom('x402_payment').select('state').executeTakeFirst())?.state;

const OURS = ['abandoned_payments', 'doubtful_payments', 'payment_audio'];

/** A turn of a day later, by the clock that judges the minutes of stored audio. */
async function turnTomorrow(t: Test, gateway: X402Gateway) {
  t.teardown(() => mock.timers.reset());
  mock.timers.enable({ apis: ['Date'], now: Date.now() + 90_000_000 });
  const acted = await turn(gateway);
  mock.timers.reset();
  return acted;
}

/** What the reconcilers of payments did in one turn; those that did nothing are left out. */
async function turn({ app }: X402Gateway) {
  const results = (await app.reconcilers.turn()).filter(({ name }) => OURS.includes(name));
  const acted = results.filter(({ outcome, count }) => outcome === 'failed' || count > 0);
  return Object.fromEntries(acted.map(({ name, outcome, count }) => [name, outcome === 'failed' ? outcome : count]));
}

async function isStored(gateway: X402Gateway): Promise<boolean> {
  const { id, fence } = await gateway.db.selectFrom('x402_payment').select(['id', 'fence']).executeTakeFirstOrThrow();
  const store = openAudioStore(gateway.config.jobs.audioStore);
  const stored = await store.dated.x402.open(paymentAudioKey({ id, fence })).finally(() => store.close());
  stored?.stream.destroy();
  return stored !== undefined;
}

test('a payment whose settle response was lost ends without its client', { skip }, async (t) => {
  const node = await startTcpProxy(t, chain.rpcUrl);
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: node.url });
  const payer = await wallet(chain.client, PRICE);
  const { paid } = await payUnknown(gateway, chain, () => payFor(gateway, payer));

  await t.test('R25: a turn without its node fails and changes nothing, the next one settles', async (t) => {
    node.cut();
    t.strictSame(await turn(gateway), { doubtful_payments: 'failed' });
    t.equal(await stateOf(gateway), 'unknown');
    node.restore();
    t.strictSame(await turn(gateway), { doubtful_payments: 1 });
    t.equal(await stateOf(gateway), 'settled');
    t.strictSame(await turn(gateway), {});
    t.strictSame(await audit(gateway.db), []);
    t.equal((await gateway.call('/x402/tts', paid)).headers.get('x-idempotent-replay'), 'true');
  });

  await t.test('R45: the chain decides a payment whose process died while settling', async (t) => {
    const asIf = (lease: string) =>
      unguarded(gateway.db, async (db) => {
        await sql`delete from transfer`.execute(db);
        await sql`
          update x402_payment set state = 'settling', settled_at = null, transaction_hash = null, log_index = null,
            receipt = null, lease_until = ${sql.raw(lease)}`.execute(db);
      });
    await asIf(`now() + interval '5 seconds'`);
    t.strictSame(await turn(gateway), {});
    t.equal(await stateOf(gateway), 'settling');
    await asIf(`now() - interval '1 second'`);
    t.strictSame(await turn(gateway), { doubtful_payments: 1 });
    t.equal(await stateOf(gateway), 'settled');
    t.strictSame(await audit(gateway.db), []);
  });
});

test('a refused settlement is watched until it fails and keeps its audio until then', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  gateway.facilitator.faults.settle(refused('insufficient_funds'));
  const { reply, paid } = await payFor(gateway, await wallet(chain.client, PRICE));
  t.equal(reply.status, 402);
  t.strictSame(await turn(gateway), {});
  t.equal(await stateOf(gateway), 'refused');
  // As if its authorization had ended long ago, instead of leading the chain's clock away.
  await unguarded(gateway.db, (db) => sql`update x402_payment set valid_before = 1`.execute(db));
  await chain.client.mine({ blocks: 3 });
  t.equal((await turn(gateway)).doubtful_payments, 1);
  t.equal(await stateOf(gateway), 'failed');
  const { body: metrics } = await gateway.app.admin.inject({ url: '/metrics' });
  t.match(metrics, /^speechgate_payments_total\{flow="direct",event="failed"\} 1$/m);
  t.strictSame(await turnTomorrow(t, gateway), {});
  t.equal(await isStored(gateway), true);
  const again = await gateway.call('/x402/tts', paid);
  t.strictSame([again.status, again.json.error.details.error], [402, 'insufficient_funds']);
  await unguarded(gateway.db, (db) =>
    sql`update x402_payment set failed_at = now() - interval '86401 seconds', next_look_at = now()`.execute(db),
  );
  await turn(gateway);
  t.strictSame(await turnTomorrow(t, gateway), { payment_audio: 1 });
  t.equal(await isStored(gateway), false);
  t.strictSame(await audit(gateway.db), []);
});

test('after the replay window the audio is deleted and the payment buys nothing', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  const { paid, payload } = await payFor(gateway, payer);
  t.strictSame(await turnTomorrow(t, gateway), {});
  await unguarded(gateway.db, (db) =>
    sql`update x402_payment set settled_at = now() - interval '86401 seconds'`.execute(db),
  );
  t.strictSame(await turn(gateway), {}, 'its minute began less than a day ago');
  t.strictSame(await turnTomorrow(t, gateway), { payment_audio: 1 });
  t.equal(await isStored(gateway), false);
  const fresh = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
  for (const call of [paid, withPayment(HELLO, { ...fresh, payload: payload.payload })]) {
    t.equal((await gateway.call('/x402/tts', call)).json.error.code, 'PAYMENT_IDENTIFIER_CONFLICT');
  }
  t.strictSame(await turn(gateway), {});
  t.strictSame(await audit(gateway.db), []);
});

test('audio is needed while its payment can be replayed or may turn out to be paid', async (t) => {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const [day, more] = [`now() - interval '86390 seconds'`, `now() - interval '86410 seconds'`];
  const settled = { transaction_hash: `'0x${'a'.repeat(64)}'`, log_index: '1', receipt: `''`, settling_at: more };
  const cases: [isNeeded: boolean, purpose: string, columns: Record<string, string>][] = [
    [true, 'speech', { state: `'reserved'`, lease_until: more }],
    [true, 'speech', { state: `'settling'`, lease_until: more, settling_at: more }],
    [true, 'speech', { state: `'unknown'`, settling_at: more }],
    [true, 'speech', { state: `'refused'`, refusal: `''`, settling_at: more, failed_at: more }],
    [true, 'speech', { state: `'settled'`, ...settled, settled_at: day }],
    [false, 'speech', { state: `'settled'`, ...settled, settled_at: more }],
    [true, 'speech', { state: `'failed'`, settling_at: more, failed_at: day }],
    [true, 'speech', { state: `'failed'`, settling_at: more, failed_at: more, next_look_at: 'now()' }],
    [false, 'speech', { state: `'failed'`, settling_at: more, failed_at: more }],
    [false, 'deposit', { state: `'unknown'`, settling_at: more }],
  ];
  const minute = 29_000_000;
  for (const [index, [isNeeded, purpose, columns]] of cases.entries()) {
    for (const [at, msecs] of [0, 59_999].entries()) {
      const id = uuidv7({ msecs: (minute + 2 * index) * 60_000 + msecs });
      const names = sql.raw(['identifier', 'nonce', 'id', 'purpose', ...Object.keys(columns)].join());
      const values = sql.raw(
        [`'${index} ${at}'`, `'${index} ${at}'`, `'${id}'`, `'${purpose}'`, ...Object.values(columns)].join(),
      );
      await sql`
        insert into x402_payment (request_hash, network, asset, payer, pay_to, amount_micro_usd, valid_before, head_block, ${names})
        values ('', 'eip155:8453', '0xa', '0xb', '0xc', 198, 1, 0, ${values})`.execute(db);
      const told = JSON.stringify([purpose, columns]);
      const needed = [0, 1].map((after) => isAudioNeeded(db, minute + 2 * index + after));
      t.strictSame(await Promise.all(needed), [isNeeded, false], told);
      if (at === 0) await unguarded(db, (open) => sql`delete from x402_payment where id = ${id}`.execute(open));
    }
  }
});

test('a minute that cannot be deleted is retried next turn and does not block others', async (t) => {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const minutes = new Set([1, 2, 3]);
  let isStuck = true;
  const x402 = {
    minutes: async () => [...minutes],
    deleteMinute: async (minute: number) => {
      if (isStuck && minute === 2) throw new Error('the store fails');
      minutes.delete(minute);
      return 10;
    },
  };
  const reconciler = expiredPaymentAudio(db, { dated: { x402 } } as unknown as AudioStore);
  const turn = async () => {
    let count = 0;
    const done = (more: number) => {
      count += more;
    };
    const error = await reconciler
      .run({ signal: new AbortController().signal, steadyMs: Number.POSITIVE_INFINITY, done, report: () => {} })
      .catch((error) => error);
    return { count, error };
  };
  const { count, error } = await turn();
  t.strictSame([count, error?.message], [20, 'the store fails']);
  isStuck = false;
  t.strictSame(await turn(), { count: 10, error: undefined });
});

const catalog = loadCatalog();

test('the purpose of a transfer is inferred from its amount by catalog prices', async (t) => {
  const meanings = [
    [0n, 'neither'],
    [17n, 'neither'],
    [18n, 'speech'],
    [198n, 'speech'],
    [99_999n, 'neither'],
    [100_000n, 'deposit'],
    [108_000n, 'either'],
    [147_456n, 'either'],
    [147_492n, 'deposit'],
    [100_000_000n, 'deposit'],
    [100_000_001n, 'neither'],
  ] as const;
  for (const [amount, meaning] of meanings) t.equal(inferPurpose(amount, catalog), meaning, `${amount}`);
});

test('an amount is a price exactly if a text of some length costs it', async (t) => {
  for (const rate of [1n, 333_333n, 1_000_000n, 1_500_001n, 18_000_000n]) {
    const prices = new Set(Array.from({ length: 50 }, (_, index) => priceMicroUsd(index + 1, rate)));
    for (let amount = 0n; amount < 1000n; amount++) {
      t.equal(isPrice(amount, rate, 50), prices.has(amount), `${amount} at ${rate}`);
    }
  }
});
