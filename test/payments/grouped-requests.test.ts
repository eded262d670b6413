import assert from 'node:assert/strict';
import { mock } from 'node:test';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { GroupedStatement } from '../../src/db/hot-statements.ts';
import { audit } from '../../src/ledger/audit.ts';
import { booksClosed } from '../support/books.ts';
import { failStatements } from '../support/failing-statements.ts';
import type { Call, Reply } from '../support/gateway.ts';
import { sweepVictim } from '../support/kill.ts';
import { fundedWallet, HELLO, type PrepaidGateway, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { CAPTURE, recordStatements } from '../support/recorded-statements.ts';
import { lockRows } from '../support/row-lock.ts';
import { until } from '../support/until.ts';

/** Of HELLO, in micro-USD. */
const PRICE = 198n;
/** A cent. */
const FUNDS = 10_000n;
const PLACING = /insert into transfer/;

/** Somebody with a cent. */
interface Payer {
  /** Of his account. */
  readonly id: string;
  call(json?: object): Promise<Call>;
  balance(): Promise<bigint>;
}

interface Flow {
  readonly name: string;
  readonly path: string;
  open(gateway: PrepaidGateway): Promise<Payer>;
}

/** Whose requests are paid for by statements that they share. */
const FLOWS: readonly Flow[] = [
  {
    name: 'card',
    path: '/tts',
    open: async (gateway) => {
      const id = await gateway.fund(1);
      const headers = { 'x-credit-account': id };
      return {
        id,
        call: async (json = HELLO.json as object) => ({ ...HELLO, json, headers }),
        balance: () => gateway.balance(id),
      };
    },
  },
  {
    name: 'prepaid',
    path: TTS,
    open: async (gateway) => {
      const { wallet, sign, balance } = await fundedWallet(gateway, FUNDS);
      const { id } = await gateway.db
        .selectFrom('account')
        .select('id')
        .where('address', '=', wallet.address.toLowerCase())
        .executeTakeFirstOrThrow();
      return { id, call: (json = HELLO.json as object) => sign(TTS, { ...HELLO, json }), balance };
    },
  },
];

async function setUp(t: Test, flow: Flow, gateway: PrepaidGateway, count: number) {
  const opener = await flow.open(gateway);
  const payers: Payer[] = [];
  for (let index = 0; index < count; index++) payers.push(await flow.open(gateway));
  // What is done once a process is done.
  assert.equal((await gateway.call(flow.path, await opener.call())).status, 200);
  await booksClosed(gateway.db);
  const statements = recordStatements(t);

  /** Sends the calls while the statement of the first one is under way, so that the others share the next one. */
  async function together(calls: readonly Call[], text = PLACING): Promise<Promise<Reply>[]> {
    const first = await opener.call();
    statements.take();
    const obstacle = statements.holdBack(text);
    const asked = mock.method(GroupedStatement.prototype, 'execute');
    t.teardown(() => asked.mock.restore());
    const opened = gateway.call(flow.path, first);
    await obstacle.held;
    const replies = calls.map((call) => gateway.call(flow.path, call));
    const statementsBefore = text === PLACING ? 1 : 2;
    await until(() => asked.mock.callCount() >= statementsBefore * (calls.length + 1));
    obstacle.letGo();
    assert.equal((await opened).status, 200);
    return replies;
  }
  return {
    ...{ payers, together },
    /** How many items each statement with such a text was asked for. */
    groupSizes: (text: RegExp) =>
      statements.recorded
        .filter((statement) => text.test(statement.text))
        .map(({ values }) => (values.find(Array.isArray) as unknown[]).length),
    balances: () => Promise.all(payers.map((payer) => payer.balance())),
    findings: () => audit(gateway.db),
  };
}

const statusesOf = async (replies: readonly Promise<Reply>[]) =>
  (await Promise.all(replies)).map(({ status }) => status);

const callsOf = (payers: readonly Payer[]) => Promise.all(payers.map((payer) => payer.call()));

/** What each of `count` has, when all of them have what `usual` is but the one at `index`. */
const allBut = <T>(count: number, usual: T, index: number, odd: T): T[] =>
  Array.from({ length: count }, (_, at) => (at === index ? odd : usual));

for (const flow of FLOWS) {
  test(`${flow.name}: requests share statements, and each pays for itself`, async (t) => {
    const gateway = await startPrepaidGateway(t);

    await t.test('16 concurrent requests of one account each pay', async (t) => {
      const { payers, together, groupSizes, balances, findings } = await setUp(t, flow, gateway, 1);
      const [payer] = payers as [Payer];
      const calls = await Promise.all(Array.from({ length: 16 }, () => payer.call()));
      t.strictSame(await statusesOf(await together(calls)), Array(16).fill(200));
      t.strictSame(groupSizes(PLACING), [1, 16], 'the opener, and all others');
      t.strictSame(await balances(), [FUNDS - 16n * PRICE]);
      await booksClosed(gateway.db);
      const posted = await sql`
      select from transfer where debit_account_id = ${payer.id} and state = 'posted'`.execute(gateway.db);
      t.equal(posted.rows.length, 16);
      t.strictSame(await findings(), []);
    });

    await t.test('an account locked by another connection delays no other', async (t) => {
      const { payers, together, groupSizes, balances, findings } = await setUp(t, flow, gateway, 5);
      const lock = await lockRows(
        t,
        gateway.databaseUrl,
        sql`select from account where id = ${payers[2]?.id} for update`,
      );
      const replies = await together(await callsOf(payers));
      const [locked] = replies.splice(2, 1) as [Promise<Reply>];
      let isAnswered = false;
      locked.finally(() => (isAnswered = true));
      t.strictSame(await statusesOf(replies), Array(4).fill(200));
      await lock.untilWaiting(1);
      t.strictSame([isAnswered, groupSizes(PLACING)], [false, [1, 5, 1]]);
      t.strictSame(await balances(), allBut(5, FUNDS - PRICE, 2, FUNDS));
      await lock.release();
      t.equal((await locked).status, 200);
      t.strictSame(await balances(), Array(5).fill(FUNDS - PRICE));
      t.strictSame(await findings(), []);
    });

    await t.test('an account with too little balance is refused alone', async (t) => {
      const { payers, together, groupSizes, balances, findings } = await setUp(t, flow, gateway, 5);
      const calls = await callsOf(payers);
      calls[2] = (await payers[2]?.call({ text: 'a'.repeat(1_000) })) as Call;
      t.strictSame(await statusesOf(await together(calls)), allBut(5, 200, 2, 402));
      t.strictSame(groupSizes(PLACING), [1, 5]);
      t.strictSame(await balances(), allBut(5, FUNDS - PRICE, 2, FUNDS));
      t.strictSame(await findings(), []);
    });

    await t.test('of 16 concurrent requests, an account pays as many as it can', async (t) => {
      const { payers, together, balances } = await setUp(t, flow, gateway, 1);
      const [payer] = payers as [Payer];
      await sql`update account set balance_micro_usd = ${5n * PRICE + 1n} where id = ${payer.id}`.execute(gateway.db);
      const calls = await Promise.all(Array.from({ length: 16 }, () => payer.call()));
      const statuses = await statusesOf(await together(calls));
      t.strictSame(statuses.sort(), [...Array(5).fill(200), ...Array(11).fill(402)]);
      t.strictSame(await balances(), [1n]);
      const held = await sql`select from transfer where debit_account_id = ${payer.id} and kind <> 'top_up'`.execute(
        gateway.db,
      );
      t.equal(held.rows.length, 5);
    });
  });

  test(`${flow.name}: a hold that the database refuses fails alone, uncharged`, async (t) => {
    const gateway = await startPrepaidGateway(t);
    const { payers, together, groupSizes, balances, findings } = await setUp(t, flow, gateway, 5);
    const when = sql`new.debit_account_id = ${sql.lit(payers[2]?.id)} and new.state <> 'voided'`;
    await failStatements(gateway.db, { table: 'transfer', on: 'insert', when, state: 'P0001' });
    const replies = await together(await callsOf(payers));
    t.strictSame(await statusesOf(replies), allBut(5, 200, 2, 500));
    t.strictSame(groupSizes(PLACING), [1, 5, 1, 1, 1, 1, 1], 'together, and then each alone');
    t.strictSame(await balances(), allBut(5, FUNDS - PRICE, 2, FUNDS));
    t.strictSame(await findings(), []);
  });

  test(`${flow.name}: a capture that the database refuses fails alone`, async (t) => {
    const gateway = await startPrepaidGateway(t);
    const { payers, together, groupSizes, balances, findings } = await setUp(t, flow, gateway, 5);
    const when = sql`new.debit_account_id = ${sql.lit(payers[2]?.id)} and new.state = 'posted'`;
    await failStatements(gateway.db, { table: 'transfer', on: 'update', when, state: 'P0001' });
    const replies = await together(await callsOf(payers), CAPTURE);
    t.strictSame(await statusesOf(replies), Array(5).fill(200));
    const pending = gateway.db.selectFrom('transfer').select('id').where('state', '=', 'pending');
    await until(async () => groupSizes(CAPTURE).length === 7 && (await pending.execute()).length === 1);
    t.strictSame(groupSizes(CAPTURE), [1, 5, 1, 1, 1, 1, 1], 'together, and then each alone');
    await sweepVictim(gateway);
    t.strictSame(await balances(), allBut(5, FUNDS - PRICE, 2, FUNDS));
    t.strictSame(await findings(), []);
  });
}

test('card: an account at its rate limit is refused alone', async (t) => {
  const [card] = FLOWS as [Flow];
  const gateway = await startPrepaidGateway(t, { RATE_LIMIT_MAX: '2' });
  const { payers, together, groupSizes, balances, findings } = await setUp(t, card, gateway, 5);
  const busy = (await payers[2]?.call()) as Call;
  for (let slot = 0; slot < 2; slot++) t.equal((await gateway.call(card.path, busy)).status, 200);
  const replies = await Promise.all(await together(await callsOf(payers)));
  t.strictSame(
    replies.map(({ status }) => status),
    allBut(5, 200, 2, 429),
  );
  t.strictSame(
    replies.map(({ headers }) => headers.get('x-ratelimit-remaining')),
    allBut(5, '1', 2, '0'),
  );
  t.strictSame(groupSizes(PLACING), [1, 5]);
  t.strictSame(await balances(), allBut(5, FUNDS - PRICE, 2, FUNDS - 2n * PRICE));
  t.strictSame(await findings(), []);
});
