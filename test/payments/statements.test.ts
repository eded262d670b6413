import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import type { Database } from '../../src/db/database.ts';
import { booksClosed } from '../support/books.ts';
import { testChain, wallet } from '../support/chain.ts';
import { DEPOSIT, DEPOSIT_PATH, depositOf, mineSteadily, signDeposit } from '../support/deposit.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { PAYERS, SPEECH } from '../support/payers.ts';
import { CAPTURE, recordStatements } from '../support/recorded-statements.ts';
import { until } from '../support/until.ts';
import { startX402Gateway, withPayment } from '../support/x402.ts';

/** What a commit has changed, and whether it waits until that is on disk. */
interface RecordedCommit {
  /** Tables, in alphabetical order. */
  readonly changed: readonly string[];
  /** By the setting `synchronous_commit` as it was when the transaction committed. */
  readonly waits: boolean;
}

const TABLES = ['account', 'transfer', 'prepaid_nonce', 'rate_window', 'x402_payment', 'job'];

/**
 * Has the database note its commits in these tables from now on: by triggers that run when a transaction commits, behind
 * all that its statements have set.
 */
async function recordCommits(db: Database): Promise<{ take(): Promise<RecordedCommit[]> }> {
  await sql`
    create table noted_commit (at serial, id xid8, table_name text, waits boolean, primary key (id, table_name))`.execute(
    db,
  );
  await sql`
    create function note_commit() returns trigger language plpgsql as ${sql.lit(`begin
      insert into noted_commit (id, table_name, waits)
      values (pg_current_xact_id(), tg_table_name, current_setting('synchronous_commit') <> 'off') on conflict do nothing;
      return null;
    end`)}`.execute(db);
  for (const table of TABLES) {
    await sql`
      create constraint trigger zz_noting after insert or update or delete on ${sql.table(table)}
      deferrable initially deferred for each row execute function note_commit()`.execute(db);
  }
  return {
    take: async () => {
      const { rows } = await sql<RecordedCommit>`
        with noted as (delete from noted_commit returning *)
        select array_agg(table_name order by table_name) as changed, bool_and(waits) as waits
        from noted group by id order by min(at)`.execute(db);
      return rows;
    },
  };
}

/** What a request takes of the database; `+` stands where the provider is asked. */
interface Counted {
  readonly statements: string;
  /** What each commit has changed, and whether it waits until that is on disk. */
  readonly commits: readonly string[];
}

// Only what a crash of the database may lose does not wait for the disk: slots, and reservations, behind which the
// settling is written.
const SLOT = 'rate_window: does not wait';
const RESERVATION = 'x402_payment: does not wait';
const SETTLING = 'x402_payment: waits';

const { chain, skip } = await testChain();

/** @param upstream of the gateway, where the provider is asked */
async function counting(t: Test, { db }: Gateway, upstream?: { mode: (...parameters: never[]) => void }) {
  const commits = await recordCommits(db);
  const statements = recordStatements(t);
  const before: number[] = [];
  const speak = upstream?.mode;
  if (upstream && speak) {
    upstream.mode = (...parameters) => {
      before.push(statements.take().length);
      speak(...parameters);
    };
  }
  /** @param last statement, which may come after the answer */
  return async (use: () => Promise<unknown>, last?: RegExp): Promise<Counted> => {
    statements.take();
    await use();
    if (last) await until(() => statements.recorded.some(({ text }) => last.test(text)));
    const counts = [...before.splice(0), statements.take().length].join(' + ');
    await booksClosed(db);
    const noted = (await commits.take()).map(
      ({ changed, waits }) => `${changed.join(' ')}: ${waits ? 'waits' : 'does not wait'}`,
    );
    return { statements: counts, commits: noted };
  };
}

const PAID: readonly { flow: 'card' | 'prepaid' | 'direct'; paid: Counted; repeated: Counted | undefined }[] = [
  {
    flow: 'card',
    paid: { statements: '1 + 1', commits: ['account rate_window transfer: does not wait', 'transfer: waits'] },
    repeated: undefined,
  },
  {
    flow: 'prepaid',
    paid: { statements: '1 + 1', commits: ['account prepaid_nonce transfer: does not wait', 'transfer: waits'] },
    repeated: { statements: '3', commits: [] },
  },
  {
    flow: 'direct',
    paid: { statements: '2 + 2', commits: [SLOT, RESERVATION, SETTLING, 'transfer x402_payment: does not wait'] },
    repeated: { statements: '3', commits: [SLOT] },
  },
];

for (const { flow, paid, repeated } of PAID) {
  const { start, skip: unavailable } = PAYERS[flow];
  test(`a ${flow} request takes ${paid.statements} statements`, { skip: unavailable }, async (t) => {
    const payer = await start(t);
    await payer.ask(await payer.pay());
    await booksClosed(payer.gateway.db);
    const call = await payer.pay();
    const count = await counting(t, payer.gateway, payer.upstream);
    const last = flow === 'direct' ? undefined : CAPTURE;
    t.strictSame(await count(async () => assert.equal((await payer.ask(call)).status, 200), last), paid);
    if (repeated) t.strictSame(await count(() => payer.ask(call)), repeated);
  });
}

test('a deposit takes 6 statements', { skip }, async (t) => {
  mineSteadily(t, chain);
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, BigInt(2 * DEPOSIT));
  const deposit = async () => withPayment(depositOf(DEPOSIT), await signDeposit(gateway, payer));
  await gateway.call(DEPOSIT_PATH, await deposit());
  const call = await deposit();
  const count = await counting(t, gateway);
  t.strictSame(await count(async () => assert.equal((await gateway.call(DEPOSIT_PATH, call)).status, 200)), {
    statements: '6',
    commits: [RESERVATION, SETTLING, SETTLING, 'account transfer x402_payment: waits'],
  });
});

test("a job takes 5 statements to accept and 6 to synthesize, beside its queue's", async (t) => {
  const payer = await PAYERS.job.start(t);
  await payer.ask(await payer.pay());
  const statements = recordStatements(t);
  const isOver = () => statements.recorded.filter(({ text }) => text === 'commit').length === 2;
  const count = await counting(t, payer.gateway, payer.upstream);
  const call = await payer.pay();
  const counted = await count(async () => {
    assert.equal((await payer.gateway.call(payer.path, call)).status, 202);
    await until(isOver);
  });
  t.strictSame(counted, {
    // The sixth claims the job.
    statements: '6 + 5',
    commits: [SLOT, 'account job transfer: waits', 'job transfer: waits', 'job transfer: waits'],
  });
});

const REFUSED: readonly {
  title: string;
  path: string;
  account?: 'unknown' | 'poor' | 'busy';
  status: number;
  told: Counted;
}[] = [
  { title: 'without a payment', path: '/x402/tts', status: 402, told: { statements: '0', commits: [] } },
  { title: 'without an account', path: '/tts', status: 402, told: { statements: '1', commits: [SLOT] } },
  {
    title: 'of an unknown account',
    path: '/tts',
    account: 'unknown',
    status: 402,
    told: { statements: '2', commits: [SLOT] },
  },
  {
    title: 'of an account that holds too little',
    path: '/tts',
    account: 'poor',
    status: 402,
    told: { statements: '1', commits: [SLOT] },
  },
  {
    title: 'of an account that has used up its window',
    path: '/tts',
    account: 'busy',
    status: 429,
    told: { statements: '1', commits: [SLOT] },
  },
];

test('a refused request writes at most its rate limit slot', async (t) => {
  const gateway = await startGateway(t, { RATE_LIMIT_MAX: '2' });
  const accounts = { poor: await gateway.fund(1), busy: await gateway.fund(100), unknown: randomUUID() };
  const LONG = { method: 'POST', json: { text: 'a'.repeat(1_000) } };
  const headersOf = (account: keyof typeof accounts | undefined) =>
    account === undefined ? {} : { 'x-credit-account': accounts[account] };
  for (let slot = 0; slot < 2; slot++) await gateway.call('/tts', { ...SPEECH, headers: headersOf('busy') });
  await booksClosed(gateway.db);
  const count = await counting(t, gateway);
  for (const { title, path, account, status, told } of REFUSED) {
    const call = { ...LONG, headers: headersOf(account) };
    const counted = await count(async () => assert.equal((await gateway.call(path, call)).status, status, title));
    t.strictSame(counted, told, title);
  }
});
