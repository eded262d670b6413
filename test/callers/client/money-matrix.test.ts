import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import type { LocalAccount } from 'viem';
import {
  cardCredits,
  directX402,
  type Flow,
  OutcomeUnknownError,
  type PendingPurchase,
  prepaid,
  Speechgate,
} from '../../../src/callers/client/index.ts';
import { rotateKeys } from '../../../src/config/signing-keys.ts';
import { findWallet } from '../../../src/ledger/accounts.ts';
import { audit } from '../../../src/ledger/audit.ts';
import { usdcBalance } from '../../../src/sandbox/chain/fund.ts';
import { startMcpAgent } from '../../support/agent.ts';
import { askBridge, bridgeOf } from '../../support/bridge.ts';
import { catalogFile } from '../../support/catalog-file.ts';
import { testChain, wallet } from '../../support/chain.ts';
import { dated, listening, pinsOf } from '../../support/client.ts';
import { testDatabase } from '../../support/database.ts';
import { shiftDatabaseClock } from '../../support/database-clock.ts';
import { mineSteadily } from '../../support/deposit.ts';
import { testFacilitator } from '../../support/facilitator.ts';
import { startGateway } from '../../support/gateway.ts';
import { bookDeposit } from '../../support/prepaid.ts';
import { projectFile } from '../../support/project.ts';
import { testUpstream } from '../../support/stub-upstream.ts';
import { startTcpProxy } from '../../support/tcp-proxy.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { unguarded } from '../../support/unguarded.ts';
import { until } from '../../support/until.ts';
import { budgetPath, openBudget } from '../budget/support.ts';

const { chain, skip } = await testChain();
const ORDER = { text: 'Hello world' };
const FUNDS = 1_000_000n;
const DEPOSIT = 100_000n;
const FLOWS: readonly Flow[] = ['card', 'direct', 'prepaid'];

/** When the first answer is lost: before anything is written, once the payment is held or reserved, or at the end. */
type Loss = 'before commit' | 'after commit' | 'after settle';

/** Somebody who has bought once, whose answer was lost. */
interface Buyer {
  readonly name: string;
  /** Asks for the same purchase again; true when its end is known now. */
  again(): Promise<boolean>;
  /** What counts as spent or as set aside by the caller, in micro-USD, apart from each other. */
  counted(): Promise<{ readonly spent: bigint; readonly reserved: bigint }>;
  /** What ledger and chain say was taken, in micro-USD. */
  taken(): Promise<bigint>;
}

/** Starts when this many have come to it, and ends when the last of them leaves. */
class Outage {
  readonly #database: (isThere: boolean) => void;
  #missing = 0;
  #running = 0;
  #begun: (() => void)[] = [];

  constructor(database: (isThere: boolean) => void) {
    this.#database = database;
  }

  expect(count: number): void {
    this.#missing = count;
  }

  async during<T>(work: () => Promise<T>): Promise<T> {
    this.#running++;
    const begins = new Promise<void>((resolve) => this.#begun.push(resolve));
    if (--this.#missing === 0) {
      this.#database(false);
      for (const begin of this.#begun.splice(0)) begin();
    }
    await begins;
    try {
      return await work();
    } finally {
      if (--this.#running === 0) this.#database(true);
    }
  }
}

const realNow = Date.now;
let offsetMs = 0;
Date.now = () => realNow() + offsetMs;

type World = Awaited<ReturnType<typeof startWorld>>;

/** The service under callers, which is taken away, changed and started again. */
async function startWorld(t: Test) {
  const upstream = await testUpstream(t);
  const facilitator = await testFacilitator(t, chain);
  const { url: databaseUrl } = await testDatabase(t);
  const line = await startTcpProxy(t, databaseUrl);
  const folder = await temporaryFolder(t);
  const keys = join(folder, 'keys.json');
  await writeFile(keys, JSON.stringify(rotateKeys(undefined, new Date(realNow()))));
  t.teardown(() => (offsetMs = 0));
  const settings = {
    ...(await listening()),
    SIGNING_KEYS_FILE: keys,
    AUDIO_STORE: `file:${folder}`,
    JOB_SIGNING_SECRET: 'a secret of links of 32 bytes or more',
    SPEECH_BASE_URL: upstream.url,
    X402_PAY_TO: '0xcA11bde05977b3631167028862bE2a173976CA11',
    X402_FACILITATOR_URL: facilitator.url,
    X402_RPC_URL: chain.rpcUrl,
  };
  const start = (env: Record<string, string>) =>
    startGateway(t, { ...settings, ...env }, { databaseUrl: line.url, worker: true });
  let gateway = await start({});
  const clock = await shiftDatabaseClock(databaseUrl);
  t.teardown(() => clock.close());
  const database = (isThere: boolean) => (isThere ? line.restore() : line.cut());
  return {
    get gateway() {
      return gateway;
    },
    upstream,
    database,
    outage: new Outage(database),
    restart: async (env: Record<string, string>) => {
      await gateway.app.close();
      gateway = await start(env);
    },
    pass: async (seconds: number) => {
      offsetMs += seconds * 1000;
      await clock.advance(`${seconds} seconds`);
    },
  };
}

/** A connection that loses the first answer to what pays, and lets everything through from then on. */
function losing(world: World, loss: Loss): typeof fetch {
  let isLost = false;
  return async (input, init) => {
    const { headers } = input instanceof Request ? input : { headers: new Headers(init?.headers) };
    const pays = ['payment-signature', 'x-x402-signature', 'idempotency-key'].some((name) => headers.has(name));
    if (isLost || !pays) return dated(await fetch(input, init));
    isLost = true;
    const lost = () => Promise.reject(new TypeError('the answer is lost'));
    const request = new Request(input, init);
    if (loss === 'before commit') {
      await world.outage.during(() =>
        fetch(request).then(
          (response) => response.arrayBuffer(),
          () => {},
        ),
      );
      return lost();
    }
    const asked = world.upstream.requests.length;
    const left = new AbortController();
    const answer = fetch(request, { signal: left.signal });
    if (loss === 'after commit' && !headers.has('idempotency-key')) {
      // A deposit asks no upstream: its answer is lost at the end.
      await Promise.race([until(() => world.upstream.requests.length > asked).catch(() => {}), answer]);
      left.abort();
    }
    await answer.then((response) => response.arrayBuffer()).catch(() => {});
    return lost();
  };
}

async function payerOf(world: World, flow: Flow) {
  const { gateway } = world;
  if (flow === 'card') {
    const account = await gateway.fund(Number(FUNDS / 10_000n));
    return { way: cardCredits(account), taken: async () => FUNDS - (await world.gateway.balance(account)) };
  }
  const payer = await wallet(chain.client, flow === 'direct' ? FUNDS : 0n);
  if (flow === 'direct')
    return { way: directX402(payer), taken: async () => FUNDS - (await usdcBalance(chain.client, payer.address)) };
  const address = payer.address.toLowerCase();
  await bookDeposit(gateway.db, address, FUNDS);
  return { way: prepaid(payer), taken: async () => FUNDS - ((await findWallet(world.gateway.db, address)) ?? 0n) };
}

/** What a caller of one of the kinds is made of. */
async function callerOf(t: Test, world: World, flow: Flow, loss: Loss) {
  const { way, taken } = await payerOf(world, flow);
  const path = await budgetPath(t);
  const budget = await openBudget(t, path, {});
  const trust = pinsOf(world.gateway);
  const { baseUrl } = world.gateway.config;
  const client = new Speechgate({ baseUrl, pay: way, trust, budget, timeoutMs: 0, fetch: losing(world, loss) });
  const counted = async () => {
    const { spentMicroUsd: spent, reservedMicroUsd: reserved } = await budget.read();
    return { spent, reserved };
  };
  return { client, budget, path, taken, counted };
}

type Start = (t: Test, world: World, flow: Flow, loss: Loss) => Promise<Buyer>;

const client: Start = async (t, world, flow, loss) => {
  const { client, budget, ...caller } = await callerOf(t, world, flow, loss);
  const error = await client.speak(ORDER, { durable: true }).catch((error) => error);
  assert.ok(error instanceof OutcomeUnknownError, String(error));
  const { identifier } = error.pending;
  let isOver = false;
  const again = async () => {
    const open = isOver ? undefined : await budget.find(identifier);
    if (!open) return true;
    isOver = !((await client.resume(error.pending).catch((error) => error)) instanceof OutcomeUnknownError);
    return isOver;
  };
  return { name: `client, ${flow}, ${loss}`, again, ...caller };
};

const bridge: Start = async (t, world, flow, loss) => {
  const { client, budget, ...caller } = await callerOf(t, world, flow, loss);
  const { url } = await bridgeOf(t, client, { budget, flow });
  const ask = async () => (await askBridge(url)).status;
  assert.equal(await ask(), 409, flow);
  return { name: `bridge, ${flow}, ${loss}`, again: async () => (await ask()) !== 409, ...caller };
};

const agent: Start = async (t, world, flow, loss) => {
  const { client, budget, path, ...caller } = await callerOf(t, world, flow, loss);
  const { call } = await startMcpAgent(t, dirname(path), { client, budget, flow });
  const ask = async () => (await call('speak', ORDER)).text;
  assert.match(await ask(), /resume/);
  return { name: `MCP, ${flow}, ${loss}`, again: async () => !/resume/.test(await ask()), ...caller };
};

/** A deposit is no purchase: what its caller was told is held against the chain. */
async function fundedWallet(_t: Test, world: World, loss: Loss): Promise<Buyer> {
  const payer: LocalAccount = await wallet(chain.client, FUNDS);
  const { baseUrl } = world.gateway.config;
  const trust = pinsOf(world.gateway);
  const client = new Speechgate({ baseUrl, pay: prepaid(payer), trust, timeoutMs: 0, fetch: losing(world, loss) });
  const error = await client.deposit(DEPOSIT).catch((error) => error);
  assert.ok(error instanceof OutcomeUnknownError, String(error));
  const { pending } = error as { pending: PendingPurchase };
  let spent: bigint | undefined;
  return {
    name: `deposit, ${loss}`,
    again: async () => {
      if (spent === undefined) {
        const end = await client.resumeDeposit(pending).catch((error) => error);
        if (!(end instanceof Error)) spent = DEPOSIT;
        else if (!(end instanceof OutcomeUnknownError)) spent = 0n;
      }
      return spent !== undefined;
    },
    counted: async () => ({ spent: spent ?? 0n, reserved: spent === undefined ? DEPOSIT : 0n }),
    taken: async () => FUNDS - (await usdcBalance(chain.client, payer.address)),
  };
}

async function startBuyers(t: Test, world: World): Promise<Buyer[]> {
  const starts = [client, bridge, agent].flatMap((start) =>
    FLOWS.map((flow) => (loss: Loss) => start(t, world, flow, loss)),
  );
  starts.push((loss) => fundedWallet(t, world, loss));
  world.outage.expect(starts.length);
  const buyers = await Promise.all(starts.map((start) => start('before commit')));
  // Whether somebody's request is at the upstream can only be seen of one at a time.
  for (const start of starts) buyers.push(await start('after commit'));
  return [...buyers, ...(await Promise.all(starts.map((start) => start('after settle'))))];
}

/** Nothing that was taken is counted as free, however the purchase stands. */
async function assertCounted(buyers: readonly Buyer[], when: string): Promise<void> {
  for (const { name, counted, taken } of buyers) {
    const { spent, reserved } = await counted();
    const sum = await taken();
    assert.ok(spent + reserved >= sum, `${name}, ${when}: ${spent} + ${reserved} counted, ${sum} taken`);
  }
}

/** Everybody's purchase has come to its end, and callers, ledger and chain agree about it. */
async function assertAgreed(world: World, buyers: readonly Buyer[]): Promise<void> {
  const ends = buyers.map(async ({ name, again, counted, taken }) => {
    await until(async () => (await counted()).reserved === 0n || again().then(() => false)).catch(() =>
      assert.fail(`${name} has no end`),
    );
    assert.deepEqual(await counted(), { spent: await taken(), reserved: 0n }, name);
  });
  await Promise.all(ends);
  assert.deepEqual(await audit(world.gateway.db), []);
}

const askAll = (buyers: readonly Buyer[]) => Promise.all(buyers.map(({ again }) => again()));

async function changedCatalog(t: Test, change: (model: Record<string, unknown>) => object) {
  const catalog = JSON.parse(await readFile(projectFile('src/config/catalog-default.json'), 'utf8'));
  return { CATALOG_FILE: await catalogFile(t, { ...catalog, models: catalog.models.map(change) }) };
}

/** What the service is started with again, once answers were lost. */
const RESTARTS: Readonly<Record<string, (t: Test) => Promise<Record<string, string>>>> = {
  'another quote secret, default voice, price and payee': async (t) => ({
    QUOTE_SECRET: `another quote secret ${randomUUID()}`,
    X402_PAY_TO: '0x00000000000000000000000000000000000000a1',
    ...(await changedCatalog(t, (model) => ({
      ...model,
      defaultVoice: 'nova',
      baseRatePicoUsdPerCharacter: 30_000_000,
    }))),
  }),
  'no node': async () => ({ X402_RPC_URL: '' }),
  'payment in USDC off': async () => ({ X402_PAY_TO: '', X402_FACILITATOR_URL: '', X402_RPC_URL: '' }),
  'payment by card off and no speech provider': async () => ({
    ...{ STRIPE_SECRET_KEY: '', STRIPE_API_BASE: '', SPEECH_BASE_URL: '' },
  }),
};

/** Longer than any authorization or signature holds. */
const SIGNATURES_END_SECONDS = 600;
const A_DAY_LATER_SECONDS = 26 * 3600;

for (const [name, settings] of Object.entries(RESTARTS)) {
  test(`callers, ledger and chain agree after a restart with ${name}`, { skip }, async (t) => {
    mineSteadily(t, chain);
    const world = await startWorld(t);
    const buyers = await startBuyers(t, world);
    await assertCounted(buyers, 'before');
    await world.restart(await settings(t));
    await askAll(buyers);
    await assertCounted(buyers, 'after');
    await world.pass(SIGNATURES_END_SECONDS);
    await assertAgreed(world, buyers);
  });
}

test('callers, ledger and chain agree after a database outage', { skip }, async (t) => {
  mineSteadily(t, chain);
  const world = await startWorld(t);
  const buyers = await startBuyers(t, world);
  world.database(false);
  await askAll(buyers);
  world.database(true);
  await assertCounted(buyers, 'while it is away');
  await world.pass(SIGNATURES_END_SECONDS);
  world.database(false);
  await askAll(buyers);
  world.database(true);
  await assertCounted(buyers, 'while it is away, and signatures have ended');
  await assertAgreed(world, buyers);
});

test('after a day no charged amount counts as free', { skip }, async (t) => {
  mineSteadily(t, chain);
  const world = await startWorld(t);
  const buyers = await startBuyers(t, world);
  await world.pass(A_DAY_LATER_SECONDS);
  const { db } = world.gateway;
  await unguarded(db, async (trx) => {
    await sql`update x402_payment set settled_at = settled_at - interval '26 hours'
              where settled_at is not null`.execute(trx);
    await sql`delete from prepaid_nonce`.execute(trx);
    await sql`update transfer set created_at = created_at - interval '26 hours',
              ended_at = ended_at - interval '26 hours'`.execute(trx);
  });
  await askAll(buyers);
  await assertCounted(buyers, 'a day later');
  // The nonces are forgotten: whether they were spent nobody can say, so they stay set aside.
  await assertAgreed(
    world,
    buyers.filter(({ name }) => !/prepaid/.test(name)),
  );
});
