import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { openPool } from '../../src/db/database.ts';
import { ASSET } from '../../src/sandbox/chain/chain-client.ts';
import { usdCoinAbi } from '../../src/sandbox/chain/fund.ts';
import { speechgate } from '../../test/support/speechgate.ts';
import type { PartName, Service } from './world/world.ts';

/** Kinds of contradictions. The service promises that the first four never happen. */
export const KINDS = ['paid, not served', 'served, not paid', 'charged twice', 'hold left', 'other'] as const;

const ROWS_AT_ONCE = 5_000;
/** More blocks in one request would exceed the node's timeout. */
const BLOCKS_AT_ONCE = 1_000n;
const LOOK_EVERY_MS = 1_000;
/** Longer than the longest lease, authorization with its blocks, or check of a purchase. */
const HEAL_MS = 300_000;
/** Flows that spend a balance. */
const SPEECH = `('card', 'card, streamed', 'job', 'prepaid')`;

/**
 * A hold is captured after delivery. If the process dies or freezes in between, the lease expires and the hold is
 * voided, so a response delivered at that moment is free. While the database is unavailable the service retries the
 * capture; on a connection that died silently it waits for the statement's timeout of 12 s first. If PostgreSQL dies, it
 * may have lost a hold that was not captured.
 */
const MOMENT_SECONDS = 15;
const AT_DEATH = `at between death.begun_at - ${MOMENT_SECONDS} and death.ended_at + ${MOMENT_SECONDS}`;
/** Time between a response whose hold was voided or lost and the death of its gateway or of the database. */
const DEATH = `
  select min(greatest(death.begun_at - at, at - death.ended_at, 0)) as seconds from death
  where (part = served_by and not is_charged or part = 'postgres' and is_charged is null) and ${AT_DEATH}`;

/** When a gateway was killed or frozen, or PostgreSQL was killed, in Unix milliseconds. */
interface Death {
  readonly part: PartName;
  readonly from: number;
  readonly until: number;
}

interface Named {
  readonly caller: string;
  readonly number: number;
  readonly flow: string;
  readonly ended: string;
  /** Milliseconds since the start of the run. */
  readonly begun_at: number;
  readonly ended_at: number;
  readonly keys: Readonly<Record<string, unknown>>;
}

export interface Contradiction {
  readonly kind: (typeof KINDS)[number];
  readonly words: string;
  readonly detail: string | null;
  readonly operation: Named | undefined;
}

export interface Verdict {
  readonly contradictions: readonly Contradiction[];
  /** What was booked, in micro-USD. */
  readonly booked: readonly { readonly kind: string; readonly count: number; readonly sum: number }[];
  readonly ends: readonly { readonly flow: string; readonly ended: string; readonly count: number }[];
  /** Complete responses without a charge, because their process was killed or frozen before the capture. */
  readonly spared: { readonly count: number; readonly farthestSeconds: number };
}

/** A query that must return no rows: `told`, the operation's id in table `told` or null, and `detail`. */
type Rule = readonly [kind: Contradiction['kind'], words: string, sql: string];

/** Work that reconcilers and workers must finish. What remains later is a fault. */
const UNFINISHED: readonly Rule[] = [
  [
    'hold left',
    'a hold is neither captured nor void',
    `select null::integer as told, 'transfer ' || id || ', trace ' || trace_id as detail
     from transfer where state = 'pending'`,
  ],
  [
    'hold left',
    'a job has not ended',
    `select null::integer as told, 'job ' || id || ' is ' || state as detail
     from job where state in ('queued', 'processing')`,
  ],
  [
    'hold left',
    'a payment has not ended',
    `select null::integer as told, 'payment ' || id || ' is ' || state as detail
     from x402_payment where state in ('reserved', 'settling', 'unknown')`,
  ],
  [
    'paid, not served',
    'a purchase that its buyer has paid is not credited with its amount to its account',
    `select told.id as told, told.session_id as detail
     from told left join transfer on transfer.kind = 'top_up' and transfer.reference = told.session_id
     where told.session_id is not null
       and (transfer.amount_micro_usd is distinct from told.amount
         or told.payer is not null and transfer.credit_account_id::text is distinct from told.payer)`,
  ],
  [
    'other',
    'books and processor differ in what was refunded or disputed',
    `select (select min(told.id) from told where told.session_id = top_up.session_id) as told,
            payment_intent_id || ': ' || booked || ' cents instead of ' || coalesce(cents, 0) as detail
     from top_up left join taken_back using (payment_intent_id)
       cross join lateral (select coalesce(sum(amount_cents), 0) as booked
         from clawback where top_up_id = top_up.id and state = 'taken') clawbacks
     where booked <> coalesce(cents, 0)`,
  ],
];

const CHARGES_OF = 'from tally join told on told.id = tally.told where';
const IN_USDC = `('direct', 'direct, quoted', 'deposit')`;
const PAYMENTS_OF = `from told left join x402_payment payment on payment.payer = told.payer and payment.nonce = told.nonce
  and payment.state = 'settled' and payment.purpose = case when flow = 'deposit' then 'deposit' else 'speech' end
  where flow in ${IN_USDC} and`;

const RULES: readonly Rule[] = [
  [
    'charged twice',
    'one operation was charged more than once',
    `select told, charges || ' charges' as detail ${CHARGES_OF} charges > 1`,
  ],
  [
    'served, not paid',
    'the audio came, and nothing is charged, although its process was neither killed nor frozen',
    `select told, (select string_agg('voided ' || round((held.ended_at - at)::numeric, 1) || ' s later', ', ')
                   from matched join held on held.id = charge where matched.told = tally.told) as detail
     ${CHARGES_OF} ended = 'served' and charges = 0 and spared = 0`,
  ],
  [
    'paid, not served',
    'the answer was an error, or broke off, or nothing was told, and it is charged',
    `select told, ended as detail ${CHARGES_OF} ended in ('refused', 'broken off', 'open') and charges > 0`,
  ],
  [
    'other',
    'another amount is charged than the price',
    `select told, tally.amount || ' instead of ' || told.amount as detail
     ${CHARGES_OF} charges = 1 and tally.amount <> told.amount`,
  ],
  [
    'paid, not served',
    'a charge belongs to no operation',
    `select null::integer as told, 'transfer ' || id || ' of ' || amount || ' micro-USD, trace ' || trace_id as detail
     from held where is_charged and not exists (select from matched where charge = held.id)`,
  ],
  [
    'other',
    'a job of which the audio or the end was told is not completed',
    `select told.id as told, job.state as detail from told left join job on job.id::text = job_id
     where flow = 'job' and ended = 'served' and job.state is distinct from 'completed'`,
  ],
  [
    'paid, not served',
    'the payee has got USDC that no settled payment names',
    `select told.id as told, received.transaction_hash || ' of ' || received.amount as detail
     from received left join told on told.payer = received.payer and told.nonce = received.nonce
     where not exists (select from x402_payment payment
       where payment.state = 'settled' and payment.transaction_hash = received.transaction_hash
         and payment.payer = received.payer and payment.nonce = received.nonce
         and payment.amount_micro_usd = received.amount)`,
  ],
  [
    'served, not paid',
    'a caller was served or credited, and no payment of that amount is settled',
    `select told.id as told, null as detail
     ${PAYMENTS_OF} ended = 'served' and payment.amount_micro_usd is distinct from told.amount`,
  ],
  [
    'paid, not served',
    'a caller was refused, or told nothing, and the payment is settled',
    `select told.id as told, 'payment ' || payment.id as detail
     ${PAYMENTS_OF} ended in ('refused', 'open') and payment.id is not null`,
  ],
  [
    'paid, not served',
    'a settled payment belongs to no operation',
    `select null::integer as told, 'payment ' || id as detail from x402_payment payment where state = 'settled'
     and not exists (select from told where told.payer = payment.payer and told.nonce = payment.nonce
       and (flow = 'deposit') = (purpose = 'deposit') and flow in ${IN_USDC})`,
  ],
  [
    'other',
    'an answer breaks a promise by itself',
    // A database that died may have lost a nonce with its hold.
    `select id as told, wrong as detail from told where wrong is not null
     and not (flow = 'prepaid' and exists (select from death where part = 'postgres' and ${AT_DEATH}))`,
  ],
  ['other', 'the end could not be learnt', `select id as told, null as detail from told where ended = 'open'`],
];

/**
 * Waits until nothing is open, then compares the callers' records with the books, chain and processor, to the micro-USD.
 * The service's own audit compares the books with themselves, the chain and the processor. Faults and callers must have
 * ended.
 * @param told path of the callers' records
 */
export async function judge(
  world: Service,
  told: string,
  deaths: readonly Death[],
  progress: (words: string) => void,
): Promise<Verdict> {
  const pool = openPool(world.databaseUrl, { maxConnections: 1, statementTimeoutMs: 0 });
  const session = await pool.connect();
  try {
    await layTold(session, told);
    await lay(session, 'taken_back', 'payment_intent_id text, cents integer', await world.processor.takenBack());
    await heal(session, progress);
    progress('comparing');
    await layReceived(session, world);
    const seconds = deaths.map(({ part, from, until }) => ({ part, begun_at: from / 1000, ended_at: until / 1000 }));
    await lay(session, 'death', 'part text, begun_at double precision, ended_at double precision', seconds);
    await matchCharges(session);
    const contradictions: Contradiction[] = [];
    for (const rule of [...RULES, ...UNFINISHED]) contradictions.push(...(await broken(session, rule)));
    progress('auditing');
    const { code, output } = await speechgate(world.env, 'audit', '--external');
    if (code !== 0) {
      const lines = output.split('\n').filter((line) => /^(BROKEN|\s+NOT CHECKED)/.test(line));
      const detail = lines.join('; ') || output.slice(-2_000);
      contradictions.push({ kind: 'other', words: 'the audit finds fault', detail, operation: undefined });
    }
    return { contradictions, ...(await countAll(session)) };
  } finally {
    session.release(true);
    await pool.end();
  }
}

/** Creates a temporary table of these rows. */
async function lay(
  session: pg.ClientBase,
  table: string,
  columns: string,
  rows: AsyncIterable<object> | Iterable<object>,
): Promise<void> {
  await session.query(`create temp table ${table} (${columns})`);
  const insert = `insert into pg_temp.${table} select * from jsonb_populate_recordset(null::pg_temp.${table}, $1)`;
  let batch: object[] = [];
  for await (const row of rows) {
    batch.push(row);
    if (batch.length < ROWS_AT_ONCE) continue;
    await session.query(insert, [JSON.stringify(batch)]);
    batch = [];
  }
  await session.query(insert, [JSON.stringify(batch)]);
  await session.query(`analyze pg_temp.${table}`);
}

/** Table `told`: the callers' records, with ids in the order of their ends. */
async function layTold(session: pg.ClientBase, path: string): Promise<void> {
  async function* rows() {
    let id = 0;
    for await (const line of createInterface({ input: createReadStream(path) })) {
      const { from, until, end, at, amountMicroUsd: amount, servedBy: served_by, ...told } = JSON.parse(line);
      const { jobId: job_id, sessionId: session_id, payer, nonce } = told.keys;
      yield {
        ...{ ...told, id: id++, ended: end, amount, payer, nonce, job_id, session_id, served_by },
        ...{ begun_at: from, ended_at: until, at: at / 1000 },
      };
    }
  }
  await lay(
    session,
    'told',
    `id integer, caller text, number integer, flow text, ended text, amount bigint, payer text, job_id text,
     session_id text, nonce text, wrong text, begun_at double precision, ended_at double precision,
     at double precision, served_by text, keys jsonb`,
    rows(),
  );
  await session.query(`
    create index on pg_temp.told (payer, amount);
    create temp table told_trace as
      select id as told, jsonb_array_elements_text(keys -> 'traceIds') as trace_id from told;
    create index on pg_temp.told_trace (trace_id);
    analyze pg_temp.told_trace`);
}

/** Table `received`: USDC that the payee received, with the nonce of its authorization. */
async function layReceived(session: pg.ClientBase, { chain, payTo }: Service): Promise<void> {
  const head = await chain.getBlockNumber();
  const rows = [];
  for (let fromBlock = 0n; fromBlock <= head; fromBlock += BLOCKS_AT_ONCE) {
    const events = { address: ASSET, abi: usdCoinAbi, fromBlock, toBlock: fromBlock + BLOCKS_AT_ONCE - 1n } as const;
    const uses = await chain.getContractEvents({ ...events, eventName: 'AuthorizationUsed' });
    const nonces = new Map(uses.map(({ transactionHash, args }) => [transactionHash, args.nonce]));
    const transfers = await chain.getContractEvents({ ...events, eventName: 'Transfer', args: { to: payTo } });
    for (const { transactionHash, args } of transfers) {
      rows.push({
        ...{ transaction_hash: transactionHash, payer: args.from?.toLowerCase(), amount: String(args.value) },
        nonce: nonces.get(transactionHash),
      });
    }
  }
  await lay(session, 'received', 'transaction_hash text, payer text, amount bigint, nonce text', rows);
}

/**
 * Creates `matched`, the operation of each charge: by trace id, nonce or job. For callers without a final response it
 * uses payer and amount, and takes the last operation that started before the hold. Creates `tally`: for each
 * operation, its charges, and its voids and lost holds that a killed or frozen process explains.
 */
async function matchCharges(session: pg.ClientBase): Promise<void> {
  await session.query(`
    create temp table held as
    select transfer.id, coalesce(account.address, account.id::text) as payer, transfer.kind,
           amount_micro_usd as amount, transfer.trace_id::text as trace_id,
           transfer.state = 'posted' as is_charged, extract(epoch from ended_at)::double precision as ended_at,
           extract(epoch from transfer.created_at)::double precision as created_at
    from transfer join account on account.id = debit_account_id
    where transfer.kind in ('charge', 'spend') and transfer.state <> 'pending';
    create index on pg_temp.held (id);
    create index on pg_temp.held (trace_id);
    analyze pg_temp.held;
    create temp table matched as
    select told.id as told, held.id as charge
    from told join told_trace on told_trace.told = told.id join held using (trace_id)
    where told.payer = held.payer
    union
    select told.id, held.id
    from told join account on account.address = told.payer
      join prepaid_nonce on account_id = account.id and prepaid_nonce.nonce = told.nonce
      join held on held.id = prepaid_nonce.hold_id
    where flow = 'prepaid'
    union
    select told.id, held.id
    from told join job on job.id::text = told.job_id join held on held.id = job.hold_id`);
  // One after the other, so that no two charges take the same operation.
  await session.query(`
    do $$
    declare lost record;
    begin
      for lost in
        select * from held where is_charged and not exists (select from matched where charge = held.id) order by created_at
      loop
        insert into pg_temp.matched
        select told.id, lost.id from told
        where told.payer = lost.payer and told.amount = lost.amount
          and flow in ${SPEECH} and ended in ('left', 'broken off', 'open')
          and at - (told.ended_at - begun_at) / 1000 <= lost.created_at
          and not exists (select from matched where matched.told = told.id)
        order by begun_at desc limit 1;
      end loop;
    end $$`);
  await session.query(`
    create temp table tally as
    select told.id as told, count(*) filter (where is_charged) as charges,
           count(died.seconds) as spared, max(died.seconds) as spared_by_seconds,
           coalesce(sum(held.amount) filter (where is_charged), 0)::bigint as amount
    from told left join matched on told = told.id left join held on held.id = charge
      left join lateral (${DEATH}) died on true
    where flow in ${SPEECH} group by told.id;
    create index on pg_temp.tally (told)`);
}

/** Waits until nothing is open and purchases are as paid, or until the timeout. */
async function heal(session: pg.ClientBase, progress: (words: string) => void): Promise<void> {
  for (const giveUpAt = performance.now() + HEAL_MS; performance.now() < giveUpAt; await sleep(LOOK_EVERY_MS)) {
    let left = 0;
    for (const rule of UNFINISHED) left += (await broken(session, rule)).length;
    if (left === 0) return;
    progress(`${left} open`);
  }
}

async function broken(session: pg.ClientBase, [kind, words, sql]: Rule): Promise<Contradiction[]> {
  const { rows } = await session.query<{ detail: string | null } & { [Key in keyof Named]: Named[Key] | null }>(`
    select detail, caller, number, flow, ended, begun_at, ended_at, keys
    from (${sql}) broken left join told on told.id = broken.told`);
  return rows.map(({ detail, ...operation }) => ({
    ...{ kind, words, detail },
    operation: operation.caller === null ? undefined : (operation as Named),
  }));
}

async function countAll(session: pg.ClientBase): Promise<Omit<Verdict, 'contradictions'>> {
  const rowsOf = async (sql: string) => (await session.query(sql)).rows;
  const [spared] = await rowsOf(`
    select count(*)::integer as count, coalesce(max(spared_by_seconds), 0) as "farthestSeconds"
    from tally join told on told.id = tally.told
    where flow in ${SPEECH} and ended = 'served' and charges = 0 and spared > 0`);
  return {
    spared,
    booked: await rowsOf(`
      select kind, count(*)::integer as count, sum(amount_micro_usd)::double precision as sum
      from transfer where state = 'posted' group by kind order by kind`),
    ends: await rowsOf(`
      select flow, ended, count(*)::integer as count from told group by flow, ended order by flow, ended`),
  };
}
