import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { booksClosed } from '../support/books.ts';
import { catalogWithSecond, SECOND_COST } from '../support/catalog-file.ts';
import type { Gateway } from '../support/gateway.ts';
import { PAYERS, PRICE } from '../support/payers.ts';
import { type Mode, openAiError, resetInBody, type StubUpstream, startStubUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import { FAULTS_BEFORE_AUDIO } from '../support/upstream-faults.ts';

/** In micro-USD: of 50 requests. */
const BUDGET = 100_000n;
const MODEL = 'provider-a/tts-1';
const FIRST_COST = 15_000_000n;

type Start = (typeof PAYERS)['card']['start'];

async function startWithSecond(t: Test, start: Start) {
  const second = await startStubUpstream();
  t.teardown(() => second.close().catch(() => {}));
  const file = await catalogWithSecond(t, second.url, { silencePercent: 25 });
  const payer = await start(t, { CATALOG_FILE: file, SPEECH_TIMEOUT_MS: '4000' }, undefined, BUDGET);
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

/** What fails before its audio, soon and late; `test/speech/upstreams.test.ts` has all such faults. */
const FAULTS = ['status 500', 'status 400', 'silence'] as const;

for (const [name, { start, skip }] of Object.entries(PAYERS)) {
  test(`${name}: speech fails over to another upstream, and is paid once`, { skip }, async (t) => {
    const { gateway, first, second, asks, paid } = await startWithSecond(t, start);
    const working = first.mode;
    const expected: Entry[] = [];
    const isBooked = async () => {
      assert.deepEqual(await bookedSpeech(gateway), expected);
      assert.equal(await paid(), BigInt(expected.length) * PRICE);
      assert.deepEqual(await audit(gateway.db), []);
    };

    await t.test('after a fault of the first upstream, within one hold and at the same price', async (t) => {
      for (const fault of FAULTS) {
        first.mode = FAULTS_BEFORE_AUDIO[fault] as Mode;
        t.equal(await asks(), 200, fault);
        first.mode = working;
        t.equal(await asks(), 200);
        expected.push(SECOND, FIRST);
      }
      await isBooked();
      t.equal(spoken(second), FAULTS.length);
      const { rows } = await sql`select from transfer where state <> 'posted'`.execute(gateway.db);
      t.strictSame(rows, [], 'no hold was placed twice, and none was voided');
    });

    if (name === 'direct') {
      await t.test('the payment records model, characters, upstream and cost', async (t) => {
        const { rows } = await sql`
          select model, characters, upstream, cost_pico_usd as cost from x402_payment
          where purpose = 'speech' order by id limit 1`.execute(gateway.db);
        t.strictSame(rows, [{ model: MODEL, characters: 111, upstream: 'second', cost: SECOND_COST }]);
      });
    }

    if (name === 'card') {
      await t.test('after the first byte the response is aborted uncharged, without failover', async (t) => {
        first.mode = resetInBody();
        await t.rejects(asks());
        await until(async () => (await paid()) === BigInt(expected.length) * PRICE);
        t.equal(spoken(second), FAULTS.length);
        await isBooked();
      });
    } else {
      await t.test('also after a failure mid-audio, since nothing has been sent yet', async (t) => {
        first.mode = resetInBody();
        t.equal(await asks(), 200);
        t.equal(spoken(second), FAULTS.length + 1);
        expected.push(SECOND);
        await isBooked();
      });
    }

    await t.test('when every upstream fails, nothing is charged and the payer can retry', async (t) => {
      const before = [spoken(first), spoken(second)];
      // What does not pass by itself: a job would be tried again.
      for (const status of [400, 403, 403, 403]) {
        for (const upstream of [first, second]) upstream.mode = openAiError(status);
        t.equal(await asks(), 502);
      }
      const asked = [spoken(first), spoken(second)].map((count, index) => count - (before[index] ?? 0));
      t.strictSame(asked, [4, 4], 'broken ones are asked all the same');
      await isBooked();
      second.mode = working;
      t.equal(await asks(), 200);
      expected.push(SECOND);
      await isBooked();
    });
  });
}
