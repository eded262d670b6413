/**
 * What docs/scaling.md says a schema for several databases costs on one. The statements of requests run by turns on the
 * shipped schema, on one whose tables of money have the account in each key, and on that one in 16 hash partitions. It
 * prints the CPU of PostgreSQL's backend a request, and fails if a request reads more than one partition of a table.
 */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { Kysely, PostgresDialect, sql } from 'kysely';
import pg from 'pg';
import { test } from 'tap';
import type { DB } from '../../db/tables.ts';
import { DEFAULT_ASSET, DEFAULT_NETWORK } from '../../src/config/network.ts';
import { type Database, openDatabase, openPool } from '../../src/db/database.ts';
import { LEASE_SECONDS } from '../../src/db/lease.ts';
import { audit } from '../../src/ledger/audit.ts';
import { cardHoldStatement } from '../../src/ledger/card-holds.ts';
import { captureHolds, type HoldRecord, voidHold } from '../../src/ledger/hold.ts';
import { WalletHolds } from '../../src/ledger/wallet-holds.ts';
import { bookSettlements } from '../../src/payments/x402/book-settlement.ts';
import type { Payment } from '../../src/payments/x402/payment.ts';
import { Reservations } from '../../src/payments/x402/reservations.ts';
import { testDatabase } from '../../test/support/database.ts';
import { type ExecutedPlan, nodesOf, type PlanNode, watchPlans } from '../../test/support/plans.ts';
import { PAY_TO, RATE_PICO_USD } from '../bench/growth/fill/names.ts';
import { sizesFor } from '../bench/growth/fill/sizes.ts';
import { fillLedger } from '../bench/growth/fill-ledger.ts';
import { spread } from '../bench/statistics.ts';

const SIZES = { ...sizesFor(100_000), transfers: 400_000 };
const ROUNDS = 15;
/** Requests of each kind in a round. */
const REQUESTS = 240;
const GROUPS = [1, 8];
const PARTITIONS = 16;

/** The key of each table. That of `transfer` is new: the account whose money it is, or would be. */
const KEYS: Readonly<Record<string, string>> = {
  account: 'id',
  transfer: 'account_id',
  prepaid_nonce: 'account_id',
  job: 'account_id',
  x402_payment: 'payer',
};

const OWNER = `case when debit.kind <> 'contra' then debit.id when credit.kind <> 'contra' then credit.id
  else md5((select payer from x402_payment where id = reference::uuid))::uuid end`;

const FROM_TRANSFER = `(select transfer.*, ${OWNER} as account_id from transfer_plain transfer
  join account debit on debit.id = debit_account_id join account credit on credit.id = credit_account_id) transfer`;

/** What must be unique over all accounts, and is found without one. */
const NAMES = `
  create table wallet_address (address text primary key, account_id uuid not null);
  insert into wallet_address select address, id from account where address is not null;
  create table payment_identifier (identifier text primary key, payer text not null, payment_id uuid not null);
  insert into payment_identifier select identifier, payer, id from x402_payment;`;

/**
 * Makes each table of the shipped schema again with its constraints, indexes and triggers. Unique ones get the key.
 * @param partitions none for a table in one piece
 */
async function rebuild(url: string, partitions: number): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  for (const [table, key] of Object.entries(KEYS)) {
    const { rows } = await client.query(
      `select pg_get_triggerdef(oid) as text from pg_trigger where tgrelid = $1::regclass and not tgisinternal
       union all
       select format('alter table %s add constraint %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
       from pg_constraint where conrelid = $1::regclass and contype in ('p', 'u')
       union all
       select pg_get_indexdef(indexrelid) from pg_index where indrelid = $1::regclass
         and not exists (select from pg_constraint where conindid = indexrelid)`,
      [table],
    );
    const storage = table === 'account' ? 'with (fillfactor = 80)' : '';
    const parts = Array.from({ length: partitions }, (_, part) => part).map(
      (part) => `create table ${table}_p${part} partition of ${table}
        for values with (modulus ${partitions}, remainder ${part}) ${storage}`,
    );
    const { rows: given } = await client.query(
      `select string_agg(quote_ident(attname), ', ' order by attnum) as columns, bool_or(attidentity <> '') as numbered
       from pg_attribute where attrelid = $1::regclass and attnum > 0 and not attisdropped`,
      [table],
    );
    const columns = table === 'transfer' ? `${given[0].columns}, account_id` : given[0].columns;
    await client.query(`
      alter table ${table} rename to ${table}_plain;
      create table ${table} (like ${table}_plain including defaults including constraints
        ${table === 'transfer' ? ', account_id uuid not null' : ''}) ${partitions ? `partition by hash (${key})` : storage};
      ${parts.join(';\n')};
      insert into ${table} (${columns}) select ${columns} from ${table === 'transfer' ? FROM_TRANSFER : `${table}_plain`};
      drop table ${table}_plain cascade`);
    if (given[0].numbered) {
      await client.query(`
        create sequence ${table}_position_seq cache 1;
        select setval('${table}_position_seq', (select max(position) from ${table}));
        alter table ${table} alter column position set default nextval('${table}_position_seq')`);
    }
    for (const { text } of rows) await client.query(withKey(text, key));
  }
  await client.query(NAMES);
  await client.query('vacuum (analyze)');
  await client.end();
}

/** A unique rule of a partitioned table holds within the key. */
const withKey = (definition: string, key: string): string =>
  /PRIMARY KEY|UNIQUE/.test(definition)
    ? definition.replace(/(PRIMARY KEY|UNIQUE|USING btree) \(([^)]*)\)/, (whole, kind, columns) =>
        columns.split(', ').includes(key) ? whole : `${kind} (${columns}, ${key})`,
      )
    : definition;

interface Difference {
  readonly replace: readonly (readonly [string, string])[];
  /** The first of these values are ids. KEY stands for one more parameter: the key of each. */
  readonly hasKey?: boolean;
}

const joined = (table: string, key: string, [first, ...columns]: readonly string[], type: string) =>
  [
    [
      `) as "${first}" (${columns.map((name) => `"${name}"`).join(', ')})`,
      `, KEY::${type}[]) as "${first}" (${[...columns, key].map((name) => `"${name}"`).join(', ')})`,
    ],
    [`where "${table}"."id" =`, `where "${table}"."${key}" = "${first}"."${key}" and "${table}"."id" =`],
  ] as const;

const OWNED = ['owned', 'id', 'fence', 'upstream', 'cost'];
const HOLD = ['insert into transfer (id, ', 'insert into transfer (id, account_id, '] as const;

/** How the statements differ, so that each finds its partition. */
const DIFFERENCES: Readonly<Record<string, Difference>> = {
  hold: { replace: [HOLD, ["select hold_id, 'charge'", "select hold_id, account_id, 'charge'"]] },
  hold_prepaid: {
    replace: [
      HOLD,
      ["select hold_id, 'spend'", "select hold_id, account_id, 'spend'"],
      [
        'named join account on account.address = named.address',
        'named join wallet_address using (address) join account on account.id = wallet_address.account_id',
      ],
      ['from account where account.address', 'from wallet_address account where account.address'],
    ],
  },
  capture: { hasKey: true, replace: joined('transfer', 'account_id', OWNED, 'uuid') },
  void: { hasKey: true, replace: [['where "id" = ', 'where "account_id" = (KEY::uuid[])[1] and "id" = ']] },
  reserve: {
    replace: [
      [
        'reserved as (',
        `named as (
           insert into payment_identifier (identifier, payer, payment_id)
           select identifier, payer, id from asked join turn using (payer)
           on conflict do nothing returning payment_id
         ), reserved as (`,
      ],
      ['using (payer)\n    on', 'using (payer) join named on payment_id = id\n    on'],
    ],
  },
  settle: { hasKey: true, replace: joined('x402_payment', 'payer', OWNED, 'text') },
  book_settlement: {
    hasKey: true,
    replace: [
      ...joined('x402_payment', 'payer', ['settled', 'id', 'transaction', 'log_index', 'receipt'], 'text'),
      ['insert into "transfer" (', 'insert into "transfer" ("account_id", '],
      ['"cost_pico_usd") select ', '"cost_pico_usd") select md5("payer")::uuid, '],
      ['"ended_at") select ', '"ended_at") select "wallet_id", '],
      [
        '"wallet" as (insert into "account" ("kind", "address", "balance_micro_usd") select ',
        `"named" as (
           insert into wallet_address (address, account_id)
           select payer, gen_random_uuid() from payment where purpose = 'deposit'
           on conflict (address) do update set address = excluded.address returning *
         ), "wallet" as (
           insert into "account" ("id", "kind", "address", "balance_micro_usd")
           select (select account_id from named where address = payer), `,
      ],
      ['on conflict ("address")', 'on conflict ("id")'],
    ],
  },
};

/** Accounts of holds, and payers of payments. */
const keyOf = new Map<unknown, string>();

function withKeys(text: string, values: readonly unknown[]): [string, unknown[]] {
  const [, name = ''] = /\/\* (\w+) \*\//.exec(text) ?? [];
  const { replace = [], hasKey } = DIFFERENCES[name] ?? {};
  const changed = replace.reduce((before, [from, to]) => {
    assert.ok(before.includes(from), `${name} has no ${from}`);
    return before.replaceAll(from, to);
  }, text);
  if (!hasKey) return [changed, [...values]];
  const ids = values.find(Array.isArray) ?? [values[1]];
  return [changed.replaceAll('KEY', `$${values.length + 1}`), [...values, ids.map((id: unknown) => keyOf.get(id))]];
}

/** As a gateway's, but of one connection. */
function openOne(url: string, isShipped: boolean): Database {
  const pool = openPool(url, { maxConnections: 1, byKey: true });
  const connect = async () => {
    const client = await pool.connect();
    const query = (text: string, values: readonly unknown[] = []) =>
      isShipped ? client.query(text, [...values]) : client.query(...withKeys(text, values));
    return { query, release: () => client.release() };
  };
  return new Kysely<DB>({ dialect: new PostgresDialect({ pool: { connect, end: () => pool.end() } as never }) });
}

type Measure = <T>(statement: string, run: () => Promise<T>) => Promise<T>;

const ASSET = {
  network: DEFAULT_NETWORK,
  chainId: 8453,
  address: DEFAULT_ASSET,
  name: 'USD Coin',
  version: '2',
} as const;
const CHARACTERS = 100;
const AMOUNT = BigInt((CHARACTERS * RATE_PICO_USD) / 1_000_000);
const UPSTREAM = { name: 'upstream', costPicoUsd: 1n };
const hex = (bytes: number) => `0x${randomBytes(bytes).toString('hex')}` as const;

/** What the requests of a way to pay execute: each statement for a group of accounts. */
function callers(db: Database) {
  const placeCards = cardHoldStatement({
    leaseSeconds: LEASE_SECONDS,
    livemode: false,
    limit: { max: 60, windowSeconds: 60 },
    locked: 'skip',
  });
  const wallets = new WalletHolds(db, LEASE_SECONDS);
  const reservations = new Reservations(db, ASSET);
  const holdOf = () => {
    const usage = { model: 'model', characters: CHARACTERS, ratePicoUsd: BigInt(RATE_PICO_USD), traceId: randomUUID() };
    return { id: randomUUID(), amountMicroUsd: AMOUNT, usage };
  };
  const keep = (held: HoldRecord | undefined): HoldRecord => {
    assert.ok(held);
    keyOf.set(held.id, held.accountId);
    return held;
  };
  const holdCards = async (accounts: readonly Account[]) => {
    const placed = await placeCards(
      db,
      accounts.map(({ id }) => ({ accountId: id, ...holdOf() })),
    );
    return placed.map((each) =>
      keep(each.outcome === 'judged' && each.decided?.outcome === 'placed' ? each.decided.hold : undefined),
    );
  };
  const holdWallet = async ({ address }: Account) => {
    const expiry = BigInt(Math.floor(Date.now() / 1000) + 60);
    const placed = await wallets.place({ address, nonce: hex(32), expiry, isWithinMaximum: true, ...holdOf() });
    return keep(placed.outcome === 'placed' ? placed.hold : undefined);
  };
  const reserve = async ({ address }: Account): Promise<Payment> => {
    const claim = {
      payer: address as `0x${string}`,
      nonce: hex(32),
      payTo: PAY_TO as `0x${string}`,
      amount: AMOUNT,
      validBefore: BigInt(Math.floor(Date.now() / 1000) + 60),
    };
    const reserved = await reservations.reserve({
      purpose: 'speech',
      identifier: randomUUID(),
      requestHash: randomBytes(32),
      claim,
      headBlock: 1n,
      traceId: randomUUID(),
      usage: { model: 'model', characters: CHARACTERS },
    });
    assert.ok(reserved);
    keyOf.set(reserved.payment.id, address);
    return reserved.payment;
  };
  const capture = async (holds: readonly HoldRecord[]) =>
    assert.ok(
      (
        await captureHolds(
          db,
          holds.map((hold) => ({ ...hold, upstream: UPSTREAM })),
        )
      ).every(Boolean),
    );

  return {
    async card(groups: readonly (readonly Account[])[], measure: Measure) {
      const held = await measure('hold', () => inOrder(groups, holdCards));
      await measure('capture', () => inOrder(held, capture));
      const voided = (await inOrder(groups, holdCards)).flat();
      await measure('void', () => inOrder(voided, async (hold) => assert.ok((await voidHold(db, hold)).isVoided)));
    },
    async prepaid(groups: readonly (readonly Account[])[], measure: Measure) {
      const held = await measure('hold_prepaid', () => inOrder(groups, (group) => Promise.all(group.map(holdWallet))));
      await measure('capture_prepaid', () => inOrder(held, capture));
    },
    async direct(groups: readonly (readonly Account[])[], measure: Measure) {
      const reserved = await measure('reserve', () => inOrder(groups, (group) => Promise.all(group.map(reserve))));
      await measure('settle', () =>
        inOrder(reserved, async (payments) => {
          const begun = await Promise.all(payments.map((payment) => reservations.beginSettling(payment, UPSTREAM)));
          assert.ok(begun.every(Boolean));
        }),
      );
      await measure('book_settlement', () =>
        inOrder(reserved, async (payments) => {
          const settled = payments.map(({ id }) => ({
            id,
            proof: { transaction: hex(32), logIndex: 0 },
            receipt: 'receipt',
          }));
          assert.ok((await bookSettlements(db, settled)).every((booking) => booking?.isNew));
        }),
      );
    },
  };
}

interface Account {
  readonly id: string;
  readonly address: string;
}

async function inOrder<Item, Result>(items: readonly Item[], run: (item: Item) => Promise<Result>): Promise<Result[]> {
  const results: Result[] = [];
  for (const item of items) results.push(await run(item));
  return results;
}

const groupsOf = (accounts: readonly Account[], size: number): Account[][] =>
  Array.from({ length: accounts.length / size }, (_, group) => accounts.slice(group * size, (group + 1) * size));

/** That many of them, others in each round. */
const turnOf = (accounts: readonly Account[], round: number): Account[] =>
  Array.from({ length: REQUESTS }, (_, place) => accounts[(round * REQUESTS + place) % accounts.length] as Account);

async function accountsOf(db: Database, kind: 'card' | 'wallet'): Promise<Account[]> {
  const { rows } = await sql<Account>`
    select id, address from account where kind = ${kind} and balance_micro_usd > 500000 order by id limit 4800`.execute(
    db,
  );
  return rows;
}

/** What the one connection's backend has computed until now, in microseconds. */
async function cpuOf(db: Database): Promise<number> {
  const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(db);
  return Number((await readFile(`/proc/${rows[0]?.pid}/schedstat`, 'utf8')).split(' ')[0]) / 1000;
}

test('docs/scaling.md: keyed by account, a request reads one partition of a table', async (t) => {
  const plain = await testDatabase(t);
  const owner = openDatabase(plain.url, { maxConnections: 1, statementTimeoutMs: 0 });
  await fillLedger(owner, SIZES);
  const [cards, wallets] = [await accountsOf(owner, 'card'), await accountsOf(owner, 'wallet')];
  const { rows: version } = await sql<{ version: string }>`select version()`.execute(owner);
  await owner.destroy();
  const [keyed, partitioned] = [await testDatabase(t, plain), await testDatabase(t, plain)];
  await rebuild(keyed.url, 0);
  await rebuild(partitioned.url, PARTITIONS);

  const costs = new Map<string, number[]>();
  const schemas = [plain, keyed, partitioned].map(({ url }, schema) => {
    const db = openOne(url, url === plain.url);
    return { schema, db, callers: callers(db) };
  });
  t.teardown(() => Promise.all(schemas.map(({ db }) => db.destroy())));
  for (let round = 0; round <= ROUNDS; round++) {
    for (const size of GROUPS) {
      for (const { schema, db, callers } of round % 2 ? schemas : [...schemas].reverse()) {
        const measure: Measure = async (statement, run) => {
          const before = await cpuOf(db);
          const result = await run();
          const cost = ((await cpuOf(db)) - before) / REQUESTS;
          const key = `${statement} ${size} ${schema}`;
          // The first round fills caches and makes plans.
          if (round > 0) costs.set(key, [...(costs.get(key) ?? []), cost]);
          return result;
        };
        await callers.card(groupsOf(turnOf(cards, round), size), measure);
        await callers.prepaid(groupsOf(turnOf(wallets, round), size), measure);
        await callers.direct(groupsOf(turnOf(wallets, round), size), measure);
      }
    }
  }
  console.error(`${version[0]?.version}\nCPU of PostgreSQL in microseconds a request, medians of ${ROUNDS} rounds
| | group | shipped | keys | partitions |`);
  for (const size of GROUPS) {
    for (const [name, statements] of Object.entries(SUMS)) {
      const [shipped = 0, ...others] = schemas.map(({ schema }) =>
        statements.reduce((sum, each) => sum + spread(costs.get(`${each} ${size} ${schema}`) ?? []).median, 0),
      );
      const cells = others.map((cost) => `${cost.toFixed(0)} (${((cost / shipped - 1) * 100).toFixed(0)} %)`);
      console.error(`| ${name} | ${size} | ${shipped.toFixed(0)} | ${cells.join(' | ')} |`);
    }
  }

  const plans: ExecutedPlan[] = [];
  await watchPlans(partitioned.url, 'force_generic_plan', (plan) => plans.push(plan));
  const admin = openDatabase(partitioned.url, { maxConnections: 1, statementTimeoutMs: 0 });
  t.teardown(() => admin.destroy());
  const { rows: named } = await sql<{ name: string }>`select quote_ident(current_database()) as name`.execute(admin);
  await sql.raw(`alter database ${named[0]?.name} set auto_explain.log_nested_statements = on`).execute(admin);
  const watched = openOne(partitioned.url, false);
  t.teardown(() => watched.destroy());
  const { card, prepaid, direct } = callers(watched);
  const run: Measure = (_, run) => run();
  await card([[cards[0] as Account]], run);
  for (const pay of [prepaid, direct]) await pay([[wallets[0] as Account]], run);
  const touched = plans.map(({ text, root }) => ({ text, partitions: partitionsIn(root) }));
  t.strictSame([...new Set(touched.flatMap(({ partitions }) => partitions.map(tableOf)))].sort(), READ);
  for (const { text, partitions } of touched) {
    t.equal(new Set(partitions.map(tableOf)).size, partitions.length, `${partitions.join(', ')}: ${text}`);
  }
  for (const { url } of [plain, keyed, partitioned]) {
    const auditor = openDatabase(url, { maxConnections: 1, statementTimeoutMs: 0 });
    t.strictSame(await audit(auditor), []);
    await auditor.destroy();
  }
});

const SUMS = {
  hold: ['hold'],
  capture: ['capture'],
  void: ['void'],
  hold_prepaid: ['hold_prepaid'],
  reserve: ['reserve'],
  settle: ['settle'],
  book_settlement: ['book_settlement'],
  'card request': ['hold', 'capture'],
  'prepaid request': ['hold_prepaid', 'capture_prepaid'],
  'direct request': ['reserve', 'settle', 'book_settlement'],
};

/** The tables that these statements read; nonces and jobs are only written, or not at all. */
const READ = ['account', 'transfer', 'x402_payment'];

const PARTITION = /^(.+)_p\d+$/;
const tableOf = (partition: string) => PARTITION.exec(partition)?.[1];

/** Partitions that the plan's scans have looked into. */
const partitionsIn = (root: PlanNode): string[] => [
  ...new Set(
    [...nodesOf(root)]
      .filter((node) => node['Node Type'].endsWith('Scan') && node['Actual Loops'] > 0)
      .flatMap(({ 'Relation Name': name = '' }) => (PARTITION.test(name) ? [name] : [])),
  ),
];
