/** The disk of a real PostgreSQL is full while callers of every flow pay. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { Teardowns } from '../../lab/soak/teardowns.ts';
import { PostgresPart } from '../../lab/soak/world/postgres-part.ts';
import { migrate } from '../../src/db/migrate.ts';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../../test/support/chain.ts';
import { testCheckout } from '../../test/support/checkout.ts';
import { databaseDirectory } from '../../test/support/database-directory.ts';
import { DEPOSIT, DEPOSIT_PATH, depositOf, mineSteadily } from '../../test/support/deposit.ts';
import type { Call, Reply } from '../../test/support/gateway.ts';
import { domainOf, fundedWallet, HELLO, TTS } from '../../test/support/prepaid.ts';
import { runTurn } from '../../test/support/reconcile.ts';
import { until } from '../../test/support/until.ts';
import { challengeOf, PRICE, sign, startX402Gateway, timesPaid, withPayment } from '../../test/support/x402.ts';
import { mountDisk } from './disk.ts';

const { chain, skip: withoutChain } = await testChain();
const mounts = new Teardowns();
const folder = await mkdtemp(join(await databaseDirectory(), 'speechgate-full-'));
mounts.teardown(() => rm(folder, { recursive: true, force: true }));
// The database's account has to get through.
await chmod(folder, 0o711);
const disk = await mountDisk(mounts, join(folder, 'database'));
if (typeof disk === 'string') await mounts.close();

const FUNDS = 5_000_000n;
/** How each flow tells that it can't serve, or can't tell its end, while nothing can be written. */
const DECLARED = { balance: ['503'], chain: ['503', '409 PAYMENT_OUTCOME_UNKNOWN', '409 PAYMENT_REPLAY_PENDING'] };

interface Asked {
  readonly path: string;
  readonly call: Call;
  readonly reply: Reply;
}

async function start(t: Test) {
  t.teardown(() => mounts.close());
  assert.ok(typeof disk !== 'string');
  const postgres = await PostgresPart.open(t, join(folder, 'database'));
  await migrate(postgres.url);
  mineSteadily(t, chain);
  const checkout = await testCheckout(t);
  const env = { ...checkout.env, SPEECH_TIMEOUT_MS: '10000' };
  const gateway = await startX402Gateway(t, chain, env, { databaseUrl: postgres.url, worker: true });
  const [credits, jobs] = [await gateway.fund(500), await gateway.fund(500)];
  const prepaid = await fundedWallet({ ...gateway, domain: domainOf(gateway.payTo) }, FUNDS);
  const challenges = {
    [TTS]: await challengeOf(gateway, TTS, HELLO),
    [DEPOSIT_PATH]: await challengeOf(gateway, DEPOSIT_PATH, depositOf(DEPOSIT)),
  };
  const payers: Awaited<ReturnType<typeof wallet>>[] = [];
  const onChain = (path: typeof TTS | typeof DEPOSIT_PATH, call: Call, amount: bigint) => async () => {
    const payer = await wallet(chain.client, amount);
    payers.push(payer);
    return { path, call: withPayment(call, await sign(payer, challenges[path])) };
  };
  const json = { text: 'Hello world' };
  const flows = {
    card: async () => ({ path: '/tts?text=Hello+world', call: { headers: { 'x-credit-account': credits } } }),
    job: async () => {
      const headers = { 'x-credit-account': jobs, 'idempotency-key': randomUUID() };
      return { path: '/tts?async=true', call: { method: 'POST', json, headers } };
    },
    prepaid: async () => ({ path: TTS, call: await prepaid.sign(TTS, HELLO) }),
    direct: onChain(TTS, HELLO, PRICE),
    deposit: onChain(DEPOSIT_PATH, depositOf(DEPOSIT), BigInt(DEPOSIT)),
  };
  const charged = {
    card: async () => FUNDS - (await gateway.balance(credits)),
    job: async () => FUNDS - (await gateway.balance(jobs)),
    prepaid: async () => FUNDS - (await prepaid.balance()),
  };
  return { disk, postgres, gateway, flows, charged, payers };
}

type Flow = keyof Awaited<ReturnType<typeof start>>['flows'];
const outcomeOf = ({ status, json }: Reply) => (status === 409 ? `409 ${json.error.code}` : String(status));
const isServed = ({ reply }: Asked) => reply.status < 300;

test('a full database disk loses no payment and leaves no hold in any flow', {
  skip: withoutChain || (typeof disk === 'string' && disk),
}, async (t) => {
  const { disk, postgres, gateway, flows, charged, payers } = await start(t);
  const asked: Record<Flow, Asked[]> = { card: [], job: [], prepaid: [], direct: [], deposit: [] };
  let isOver = false;
  const callers = (Object.keys(flows) as Flow[]).map(async (flow) => {
    while (!isOver) {
      const { path, call } = await flows[flow]();
      asked[flow].push({ path, call, reply: await gateway.call(path, call) });
    }
  });
  const untilEach = (served: boolean) =>
    until(() => Object.values(asked).every((each) => each.some((one) => isServed(one) === served)));
  await untilEach(true);
  await disk.fill();
  await untilEach(false).finally(() => disk.free());
  await postgres.start();
  isOver = true;
  await Promise.all(callers);
  for (const [flow, each] of Object.entries(asked)) {
    const refused = each.filter((one) => !isServed(one)).map(({ reply }) => outcomeOf(reply));
    const declared = DECLARED[flow === 'direct' || flow === 'deposit' ? 'chain' : 'balance'];
    t.strictSame(
      refused.filter((outcome) => !declared.includes(outcome)),
      [],
      flow,
    );
    console.error(`${flow}: ${each.length} asked, ${refused.length} refused: ${[...new Set(refused)]}`);
  }

  // What can be repeated is, until its end is known: it is paid once, and served.
  for (const flow of ['job', 'direct', 'deposit'] as const) {
    for (const { path, call } of asked[flow].filter((one) => !isServed(one))) {
      await until(async () => (await gateway.call(path, call)).status < 300);
    }
  }
  const unfinishedJobs = () => gateway.db.selectFrom('job').select('id').where('state', '<>', 'completed').execute();
  await until(async () => (await unfinishedJobs()).length === 0);
  await until(async () => {
    await sql`update transfer set lease_until = now() where state = 'pending' and lease_until is not null`.execute(
      gateway.db,
    );
    await runTurn(gateway, 'expired_holds');
    return (await charged.card()) === PRICE * BigInt(asked.card.filter(isServed).length);
  });
  t.equal(await charged.prepaid(), PRICE * BigInt(asked.prepaid.filter(isServed).length));
  t.equal(await charged.job(), PRICE * BigInt(asked.job.length));
  for (const payer of payers) t.equal(await timesPaid(chain, payer), 1);
  const received = PRICE * BigInt(asked.direct.length) + BigInt(DEPOSIT) * BigInt(asked.deposit.length);
  t.equal(await gateway.revenue(), received);
  const { rows } = await sql`
    select from transfer where state = 'pending'
    union all select from x402_payment where state <> 'settled'`.execute(gateway.db);
  t.equal(rows.length, 0);
  t.strictSame(await audit(gateway.db), []);
});
