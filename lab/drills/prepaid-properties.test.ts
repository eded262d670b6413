import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Test, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { fund } from '../../src/sandbox/chain/fund.ts';
import { Clients, speakAsTold, type Tally } from '../../test/properties/prepaid-clients.ts';
import {
  chain,
  FUNDS,
  ledgerAgrees,
  skip,
  untilNoPaymentIsOpen,
  untilNothingIsHeld,
} from '../../test/properties/prepaid-ledger.ts';
import { WalletModel } from '../../test/properties/prepaid-model.ts';
import { type Kill, sampleKills, sampleOperations } from '../../test/properties/prepaid-operations.ts';
import type { ClientWallet } from '../../test/properties/prepaid-requests.ts';
import { testDatabase } from '../../test/support/database.ts';
import { mineSteadily } from '../../test/support/deposit.ts';
import { testFacilitator } from '../../test/support/facilitator.ts';
import { BASE_URL } from '../../test/support/gateway.ts';
import { startGatewayProcess } from '../../test/support/gateway-process.ts';
import { domainOf } from '../../test/support/prepaid.ts';
import { prepaidSigner } from '../../test/support/prepaid-signer.ts';
import { startStubUpstream } from '../../test/support/stub-upstream.ts';

const SEED = Number(process.env.PREPAID_SEED ?? randomInt(2 ** 31));
const OPERATIONS = 5_000;
/** The first ones are disturbed by kills, the last ones begin when nothing is open any more. */
const DISTURBED = 2_500;
const LAST = 500;
const KILL_POINTS = 10;
/** Each is a test of its own: what takes long without a sign of life counts as hanging. */
const ROUNDS = 4;
const CLIENTS = 16;
const WALLETS = 12;
const SERIAL_WALLETS = 4;

const SPEECH_TIMEOUT_MS = '5000';
const MINE_EVERY_MS = 150;
const AUDIT_EVERY_MS = 2_000;

/** With fewer of one, the operations would prove too little. */
const SEEN_AT_LEAST: Partial<Tally> = {
  ...{ charged: 1500, restored: 250, refused: 150, replayed: 500, unauthorized: 150 },
  ...{ read: 250, credited: 75, repeated: 50, lost: 5, 'lost deposit': 1 },
};

test('random deposits, spends, failures, replays and kills keep prepaid invariants', {
  skip,
}, async (t) => {
  t.comment(`PREPAID_SEED=${SEED}`);
  const { db, wallets, clients, disturbance } = await start(t);
  const operations = sampleOperations(SEED, OPERATIONS, WALLETS);
  let begun = 0;
  let done = 0;

  const runUntil = async (end: number, before: (position: number) => Promise<void> = async () => {}) => {
    const failures: unknown[] = [];
    const client = async () => {
      while (begun < end && failures.length === 0) {
        const position = begun++;
        await before(position);
        await clients.run(operations[position] as (typeof operations)[number]);
        done += 1;
      }
    };
    const fail = (error: unknown) => void failures.push(error);
    const work = Promise.all(Array.from({ length: CLIENTS }, () => client().catch(fail)));
    const isDone = async () => (await Promise.race([work, sleep(AUDIT_EVERY_MS, undefined)])) !== undefined;
    const watch = async () => {
      do assert.deepEqual(await audit(db), []);
      while (!(await isDone()));
    };
    await watch().catch(fail);
    await work;
    if (failures.length > 0) throw failures[0];
  };
  let hasFailed = false;
  const step = async (name: string, work: () => Promise<void>) => {
    if (hasFailed) return;
    await t.test(name, async () => {
      try {
        await work();
      } catch (error) {
        hasFailed = true;
        (error as Error).message = `PREPAID_SEED=${SEED}, after ${done} operations: ${(error as Error).message}`;
        throw error;
      }
    });
  };
  const agree = async () => {
    assert.deepEqual(await audit(db), []);
    for (const wallet of wallets) await ledgerAgrees(db, wallet);
  };

  const { before, isOver } = disturbance(sampleKills(SEED, KILL_POINTS, DISTURBED));
  for (let round = 1; round <= ROUNDS; round++) {
    await step(`operations under kill -9, ${KILL_POINTS} times in ${ROUNDS} rounds: round ${round}`, async () => {
      await runUntil((DISTURBED / ROUNDS) * round, before);
      await isOver();
    });
  }
  await step('more operations while the leases of killed requests expire', () => runUntil(OPERATIONS - LAST));
  await step('after the leases expire, ledger, chain and clients agree', async () => {
    await untilNothingIsHeld(db);
    await agree();
    clients.forget();
  });
  await step(`${LAST} operations with no spend in doubt`, () => runUntil(OPERATIONS));
  await step('finally, ledger, chain and clients agree', async () => {
    assert.equal(done, OPERATIONS);
    await untilNoPaymentIsOpen(db);
    await agree();
    for (const wallet of wallets) await clients.read(wallet, 0);
    const { tally } = clients;
    t.comment(JSON.stringify(tally));
    for (const [what, least] of Object.entries(SEEN_AT_LEAST) as [keyof Tally, number][]) {
      assert.ok(tally[what] >= least, `${what} only ${tally[what]} times: these operations prove too little`);
    }
  });
});

/** Two gateways on one database, a chain with a facilitator, a provider, and wallets that own USDC but no balance. */
async function start(t: Test) {
  const { url: databaseUrl } = await testDatabase(t);
  const dataDir = await mkdtemp(join(tmpdir(), 'speechgate-properties-'));
  const upstream = await startStubUpstream({ mode: speakAsTold });
  const db = openDatabase(databaseUrl, { maxConnections: 4 });
  t.teardown(async () => {
    await upstream.close();
    await db.destroy();
    await rm(dataDir, { recursive: true, force: true });
  });
  const facilitator = await testFacilitator(t, chain);
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const startOne = () =>
    startGatewayProcess(t, {
      BASE_URL,
      DATABASE_URL: databaseUrl,
      DATA_DIR: dataDir,
      LOG_LEVEL: 'error',
      SPEECH_BASE_URL: upstream.url,
      SPEECH_TIMEOUT_MS,
      X402_PAY_TO: payTo,
      X402_FACILITATOR_URL: facilitator.url,
      X402_RPC_URL: chain.rpcUrl,
      RATE_LIMIT_MAX: '1000000',
      EDGE_RATE_LIMIT_MAX: '1000000',
      RECONCILE_INTERVAL_MS: '1000',
    });
  const processes = await Promise.all([startOne(), startOne()]);
  const wallets = await Promise.all(
    Array.from({ length: WALLETS }, async (_, index): Promise<ClientWallet> => {
      const key = generatePrivateKey();
      const account = privateKeyToAccount(key);
      await fund(chain.client, account.address, { usdc: FUNDS });
      const sign = prepaidSigner(account.address, key, domainOf(payTo));
      const model = new WalletModel();
      const turn = Promise.resolve();
      return { account, sign, model, nextNonce: `first-${index}`, isSerial: index < SERIAL_WALLETS, turn };
    }),
  );
  mineSteadily(t, chain, MINE_EVERY_MS);

  const clients = new Clients(wallets, processes);

  /** Kills processes at their positions; each is started again, and the next one is killed when both live. */
  const disturbance = (kills: readonly Kill[]) => {
    const queue = [...kills];
    let restarted: Promise<void> = Promise.resolve();
    return {
      before: async (position: number) => {
        while (queue[0] && queue[0].position <= position) {
          const { gateway, delayMs } = queue[0];
          const previous = restarted;
          await previous;
          if (previous !== restarted) continue;
          queue.shift();
          restarted = sleep(delayMs).then(async () => {
            const victim = processes[gateway] as (typeof processes)[number];
            const killed = victim.kill();
            clients.killed(victim);
            await killed;
            processes[gateway] = await startOne();
          });
        }
      },
      isOver: () => restarted,
    };
  };
  return { db, wallets, clients, disturbance };
}
