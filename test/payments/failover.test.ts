import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { booksClosed } from '../support/books.ts';
import { catalogWithSecond, SECOND_COST } from '../support/catalog-file.ts';
import type { Gateway } from '../support/gateway.ts';
import { PAYERS, PRICE } from '../support/payers.ts';
import {
  hangBeforeHeaders,
  openAiError,
  resetInBody,
  type StubUpstream,
  startStubUpstream,
} from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import { FAULTS_BEFORE_AUDIO } from '../support/upstream-faults.ts';

/** In micro-USD: of 50 requests. */
const BUDGET = 100_000n;
const MODEL = 'provider-a/tts-1';
const FIRST_COST = 15_000_000n;

type Start = (typeof PAYERS)['card']['start'];

async function startWithSecond(t: Test, start: Start, env: Record<string, string> = {}) {
  const second = await startStubUpstream();
  t.teardown(() => second.close().catch(() => {}));
  const file = await catalogWithSecond(t, second.url, { silencePercent: 25 });
  const payer = await start(t, { CATALOG_FILE: file, SPEECH_TIMEOUT_MS: '4000', ...env }, undefined, BUDGET);
  return { ...payer, first: payer.upstream, second, asks: async () => (await payer.ask(await payer.pay())).status };
}

interface Entry {
  readonly amount: bigint;
  readonly model: string | null;
  readonly upstream: string | null;
  readonly cost: bigint | null;
}

/** What the books tell of all that was paid for speech, in its order. */
async function bookedSpeech({ db }: Gateway): Promise<readonly Entry[]> {
  await booksClosed(db);
  const { rows } = await sql<Entry>`
    select amount_micro_usd as amount, model, upstream, cost_pico_usd as cost from transfer
    where kind in ('charge', 'spend', 'settlement') and state = 'posted' order by position`.execute(db);
  return rows;
}

const by = (upstream: string, cost: bigint): Entry => ({ amount: PRICE, model: MODEL, upstream, cost });
const FIRST = by('default', FIRST_COST);
const SECOND = by('second', SECOND_COST);

const spoken = ({ requests }: StubUpstream) => requests.filter(({ method }) => method === 'POST').length;

for (const [name, { start, skip }] of Object.entries(PAYERS)) {
  test(`${name}: speech fails over to another upstream`, { skip }, async (t) => {
    await t.test('after any fault of the first upstream, within one hold and at the same price', async (t) => {
      const { gateway, first, second, asks, paid } = await startWithSecond(t, start);
      const working = first.mode;
      const expected: Entry[] = [];
      for (const [fault, mode] of Object.entries(FAULTS_BEFORE_AUDIO)) {
        first.mode = mode;
        assert.equal(await asks(), 200, fault);
        first.mode = working;
        assert.equal(await asks(), 200);
        expected.push(SECOND, FIRST);
      }
      await first.close();
      assert.equal(await asks(), 200, 'a refused connection');
      expected.push(SECOND);
      assert.deepEqual(await bookedSpeech(gateway), expected);
      assert.equal(spoken(second), Object.keys(FAULTS_BEFORE_AUDIO).length + 1);
      assert.equal(await paid(), BigInt(expected.length) * PRICE);
      const { rows } = await sql`select from transfer where state <> 'posted'`.execute(gateway.db);
      assert.deepEqual(rows, [], 'no hold was placed twice, and none was voided');
      assert.deepEqual(await audit(gateway.db), []);
    });

    await t.test('when every upstream fails, nothing is charged and the payer can retry', async (t) => {
      const { gateway, first, second, asks, paid } = await startWithSecond(t, start);
      const working = second.mode;
      // What does not pass by itself: a job would be tried again.
      for (const upstream of [first, second]) upstream.mode = openAiError(403);
      for (let turn = 0; turn < 4; turn++) assert.equal(await asks(), 502);
      assert.deepEqual([spoken(first), spoken(second)], [4, 4], 'broken ones are asked all the same');
      assert.equal(await paid(), 0n);
      second.mode = working;
      assert.equal(await asks(), 200);
      assert.deepEqual(await bookedSpeech(gateway), [SECOND]);
      assert.equal(await paid(), PRICE);
      assert.deepEqual(await audit(gateway.db), []);
    });

    await t.test('an upstream that refuses the text causes no failover', async (t) => {
      const { first, second, asks, paid } = await startWithSecond(t, start);
      first.mode = openAiError(400);
      assert.equal(await asks(), 502);
      assert.equal(spoken(second), 0);
      assert.equal(await paid(), 0n);
    });

    if (name === 'card') {
      await t.test('after the first byte the response is aborted uncharged, without failover', async (t) => {
        const { gateway, first, second, asks, paid } = await startWithSecond(t, start);
        first.mode = resetInBody();
        await assert.rejects(asks());
        await until(async () => (await paid()) === 0n);
        assert.equal(spoken(second), 0);
        assert.deepEqual(await audit(gateway.db), []);
      });
      return;
    }

    await t.test('also after a failure mid-audio, since nothing has been sent yet', async (t) => {
      const { gateway, first, second, asks, paid } = await startWithSecond(t, start);
      first.mode = resetInBody();
      assert.equal(await asks(), 200);
      assert.equal(spoken(second), 1);
      assert.deepEqual(await bookedSpeech(gateway), [SECOND]);
      assert.equal(await paid(), PRICE);
      assert.deepEqual(await audit(gateway.db), []);
    });
  });
}

for (const name of ['card', 'prepaid'] as const) {
  test(`${name}: hanging upstreams together take no longer than SPEECH_TIMEOUT_MS`, async (t) => {
    const env = { SPEECH_TIMEOUT_MS: '1500' };
    const { first, second, asks, paid } = await startWithSecond(t, PAYERS[name].start, env);
    for (const upstream of [first, second]) upstream.mode = hangBeforeHeaders();
    const startedAt = performance.now();
    assert.equal(await asks(), 503);
    const tookMs = performance.now() - startedAt;
    assert.ok(tookMs > 1400 && tookMs < 2500, `${tookMs} ms`);
    assert.deepEqual([spoken(first), spoken(second)], [1, 1]);
    assert.equal(await paid(), 0n);
  });
}

test('direct: the payment records model, characters, upstream and cost', {
  skip: PAYERS.direct.skip,
}, async (t) => {
  const { gateway, first, asks } = await startWithSecond(t, PAYERS.direct.start);
  first.mode = openAiError(500);
  assert.equal(await asks(), 200);
  const { rows } = await sql`
    select model, characters, upstream, cost_pico_usd as cost from x402_payment where purpose = 'speech'`.execute(
    gateway.db,
  );
  assert.deepEqual(rows, [{ model: MODEL, characters: 111, upstream: 'second', cost: SECOND_COST }]);
});
