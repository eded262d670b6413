import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { migrate } from '../../src/db/migrate.ts';
import { type TestChain, wallet } from '../support/chain.ts';
import { testCheckout } from '../support/checkout.ts';
import { testFacilitator } from '../support/facilitator.ts';
import { npmRun } from '../support/npm-run.ts';
import { mp3, silentMp3, startStubUpstream } from '../support/stub-upstream.ts';
import { QUOTE_SECRET } from '../support/x402.ts';
import { Diary } from './ask.ts';
import { DatabaseCluster, type Death } from './database-cluster.ts';
import { errorsBySort, type Fault, type Figures, figuresOf } from './figures.ts';
import {
  buy,
  cardTurn,
  depositTurn,
  directTurn,
  jobTurn,
  type Payer,
  prepaidTurn,
  SLOW_TEXT,
  type Turn,
  topUpTurn,
} from './flows.ts';
import { Front, type Pooling } from './front.ts';
import { type Contradiction, judge } from './judge.ts';
import { openPlace } from './place.ts';

export interface DrillOptions {
  readonly pooling: Pooling;
  readonly faults: readonly (Death | 'gateway one' | 'gateway two' | 'pgbouncer')[];
  /** Of load before the first fault, and after each one when it is over. */
  readonly calmMs: number;
  /** Between two requests of a caller. */
  readonly pauseMs: number;
  readonly progress: (message: string) => void;
}

export interface DrillResult {
  readonly figures: readonly Figures[];
  readonly errors: Readonly<Record<string, number>>;
  readonly contradictions: readonly Contradiction[];
  /** Of `npm run audit -- --external`. */
  readonly audit: { readonly code: number; readonly output: string };
  /** Answers without error of each flow. */
  readonly served: Readonly<Record<string, number>>;
}

const BUDGET = 100_000_000n;
/** Micro-USD of one deposit of the load, and of the one that the prepaid requests live on. */
const DEPOSIT = 100_000n;
const SPENDING = 900_000n;
const MINE_EVERY_MS = 250;
const SLOW_PIECE_MS = 150;

/** Runs the service as ops/ha has it under the load of all flows, and breaks one part of it after the other. */
export async function drill(t: Test, chain: TestChain, options: DrillOptions): Promise<DrillResult> {
  const { progress, calmMs } = options;
  const place = await openPlace(t);
  const cluster = new DatabaseCluster(t, place);
  const front = new Front(t, place, options.pooling);
  const [checkout, facilitator, upstream] = await Promise.all([
    testCheckout(t),
    testFacilitator(t, chain),
    startStubUpstream(),
  ]);
  t.teardown(() => upstream.close());
  upstream.mode = (request, response) =>
    request.body?.input === SLOW_TEXT ? speakSlowly(response) : mp3()(request, response);
  const payTo = privateKeyToAccount(generatePrivateKey()).address;

  progress('starting etcd, PostgreSQL and Patroni');
  await cluster.start();
  progress('starting HAProxy, PgBouncer, gateways and worker');
  await front.start(cluster, migrate, {
    ...checkout.env,
    ...{ SPEECH_BASE_URL: upstream.url, SPEECH_TIMEOUT_MS: '5000', RECONCILE_INTERVAL_MS: '1000' },
    ...{ X402_PAY_TO: payTo, X402_FACILITATOR_URL: facilitator.url, X402_RPC_URL: chain.rpcUrl, QUOTE_SECRET },
    ...{ RATE_LIMIT_MAX: '1000000', TOP_UP_RATE_LIMIT_MAX: '1000000', EDGE_RATE_LIMIT_MAX: '1000000' },
    ...{ DATA_DIR: place.folder, AUDIO_STORE: `file:${place.folder}/audio`, LOG_LEVEL: 'warn' },
  });
  await cluster.untilSynchronous();

  const diary = new Diary();
  const world = { url: front.url, payTo, checkout, diary };
  const mining = setInterval(() => void chain.client.mine({ blocks: 1 }).catch(() => {}), MINE_EVERY_MS);
  t.teardown(() => clearInterval(mining));

  const payer = (id = ''): Payer => ({ id: id.toLowerCase(), told: 0n, doubts: 0n });
  progress('buying credit, depositing');
  const cards = await Promise.all([1, 2, 3, 4].map(async () => payer(await buy(world))));
  const direct = await wallet(chain.client, BUDGET);
  const depositing = await wallet(chain.client, BUDGET);
  const spending = await wallet(chain.client, SPENDING);
  const [directPayer, depositPayer, spendPayer, spendDeposit] = [
    payer(direct.address),
    payer(depositing.address),
    payer(spending.address),
    payer(spending.address),
  ];
  await depositTurn(world, spending, spendDeposit, SPENDING)();
  const credited: string[] = [];
  const [buffered, other, streamed, queued] = cards as [Payer, Payer, Payer, Payer];
  const turns: Turn[] = [
    cardTurn(world, buffered),
    cardTurn(world, other),
    cardTurn(world, streamed, SLOW_TEXT),
    jobTurn(world, queued),
    topUpTurn(world, credited),
    directTurn(world, direct, directPayer),
    depositTurn(world, depositing, depositPayer, DEPOSIT),
    prepaidTurn(world, spending, spendPayer),
  ];

  progress('load begins');
  let isOver = false;
  const callers = turns.map(async (turn) => {
    for (; !isOver; await sleep(options.pauseMs)) await turn();
  });
  const faults: Fault[] = [];
  await sleep(calmMs);
  for (const name of options.faults) {
    progress(name);
    const at = performance.now();
    const recover = await strike(name, cluster, front);
    faults.push({ name, at, until: performance.now() });
    progress(`${name}: over after ${Math.round((performance.now() - at) / 100) / 10} s`);
    await sleep(calmMs);
    await recover();
  }
  isOver = true;
  const end = performance.now();
  await Promise.all(callers);

  progress('waiting for what is unfinished, then comparing');
  const told = {
    ...{ cards, prepaid: [spendPayer], direct: [directPayer], depositors: [depositPayer, spendDeposit] },
    ...{ credited, attempts: diary.attempts },
  };
  const contradictions = await judge(front.databaseUrl, told).catch((error) => [String(error), front.output()]);
  const audit = await npmRun('audit', front.env, '--external');
  const served: Record<string, number> = {};
  for (const { flow, status } of diary.attempts)
    if (status >= 200 && status < 400) served[flow] = (served[flow] ?? 0) + 1;
  return {
    figures: figuresOf(diary.attempts, faults, end),
    errors: errorsBySort(diary.attempts),
    contradictions,
    audit: { code: audit.code, output: audit.output },
    served,
  };
}

/** Does it, waits until the service has got over it, and tells how everything is as before. */
async function strike(
  name: DrillOptions['faults'][number],
  cluster: DatabaseCluster,
  front: Front,
): Promise<() => Promise<void>> {
  switch (name) {
    case 'gateway one':
    case 'gateway two': {
      const code = await front.replaceGateway(name === 'gateway one' ? 'one' : 'two');
      if (code !== 0) throw new Error(`${name} has stopped with ${code}\n${front.output()}`);
      return async () => {};
    }
    case 'pgbouncer':
      await front.restartPgbouncer();
      return async () => {};
    default: {
      const dead = await cluster.killPrimary(name);
      await cluster.untilTakenOver(dead);
      return () => cluster.revive(dead);
    }
  }
}

/** In four pieces, of a length that is not told beforehand. */
function speakSlowly(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'audio/mpeg' });
  const audio = Buffer.from(silentMp3(960));
  const size = Math.ceil(audio.length / 4);
  const say = (at: number) => {
    if (at >= audio.length) return void response.end();
    response.write(audio.subarray(at, at + size));
    setTimeout(say, SLOW_PIECE_MS, at + size);
  };
  say(0);
}
