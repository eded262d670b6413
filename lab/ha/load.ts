import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Test } from 'tap';
import type { Address } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { type TestChain, wallet } from '../../test/support/chain.ts';
import { type TestCheckout, testCheckout } from '../../test/support/checkout.ts';
import { testFacilitator } from '../../test/support/facilitator.ts';
import { mp3, silentMp3, startStubUpstream } from '../../test/support/stub-upstream.ts';
import { QUOTE_SECRET } from '../../test/support/x402.ts';
import { Diary } from './ask.ts';
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
  type World,
} from './flows.ts';
import type { Told } from './judge.ts';

const BUDGET = 100_000_000n;
/** Micro-USD of one deposit by the load, and of the deposit that pays for prepaid requests. */
const DEPOSIT = 100_000n;
const SPENDING = 900_000n;
const MINE_EVERY_MS = 250;
const SLOW_PIECE_MS = 150;

/** External services in this process: card processor, facilitator, chain and upstream. */
export interface Outside {
  readonly payTo: Address;
  readonly checkout: TestCheckout;
  /** Gateway settings for these services. */
  readonly env: Record<string, string>;
}

/** @param folder data of the gateways */
export async function openOutside(t: Test, chain: TestChain, folder: string): Promise<Outside> {
  const [checkout, facilitator, upstream] = await Promise.all([
    testCheckout(t),
    testFacilitator(t, chain),
    startStubUpstream(),
  ]);
  t.teardown(() => upstream.close());
  upstream.mode = (request, response) =>
    request.body?.input === SLOW_TEXT ? speakSlowly(response) : mp3()(request, response);
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const mining = setInterval(() => void chain.client.mine({ blocks: 1 }).catch(() => {}), MINE_EVERY_MS);
  t.teardown(() => clearInterval(mining));
  const env = {
    ...checkout.env,
    ...{ SPEECH_BASE_URL: upstream.url, SPEECH_TIMEOUT_MS: '5000', RECONCILE_INTERVAL_MS: '1000' },
    ...{ X402_PAY_TO: payTo, X402_FACILITATOR_URL: facilitator.url, X402_RPC_URL: chain.rpcUrl, QUOTE_SECRET },
    ...{ RATE_LIMIT_MAX: '1000000', TOP_UP_RATE_LIMIT_MAX: '1000000', EDGE_RATE_LIMIT_MAX: '1000000' },
    ...{ DATA_DIR: folder, AUDIO_STORE: `file:${folder}/audio`, LOG_LEVEL: 'warn' },
  };
  return { payTo, checkout, env };
}

export interface LoadOptions {
  readonly url: string;
  /** Maps a URL to the one that is really called. */
  readonly route?: (url: string) => string;
  readonly pauseMs: number;
  /** Number of callers of buffered and of streamed card requests. */
  readonly cardCallers?: readonly [short: number, streamed: number];
}

export interface Load {
  readonly diary: Diary;
  /** Stops after each caller has finished its turn. */
  stop(): Promise<Told>;
}

/** Funds callers of all flows and runs them until `stop`. */
export async function startLoad(chain: TestChain, outside: Outside, options: LoadOptions): Promise<Load> {
  const diary = new Diary(options.route);
  const world: World = { url: options.url, payTo: outside.payTo, checkout: outside.checkout, diary };
  const payer = (id = ''): Payer => ({ id: id.toLowerCase(), told: 0n, doubts: 0n });
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
  const [short, long] = options.cardCallers ?? [2, 1];
  const turns: Turn[] = [
    ...Array.from({ length: short }, (_, index) => cardTurn(world, index % 2 === 0 ? buffered : other)),
    ...Array.from({ length: long }, () => cardTurn(world, streamed, SLOW_TEXT)),
    jobTurn(world, queued),
    topUpTurn(world, credited),
    directTurn(world, direct, directPayer),
    depositTurn(world, depositing, depositPayer, DEPOSIT),
    prepaidTurn(world, spending, spendPayer),
  ];

  let isOver = false;
  const callers = turns.map(async (turn) => {
    for (; !isOver; await sleep(options.pauseMs)) await turn();
  });
  // `stop` reports a caller's error.
  for (const caller of callers) caller.catch(() => {});
  return {
    diary,
    stop: async () => {
      isOver = true;
      await Promise.all(callers);
      return {
        ...{ cards, prepaid: [spendPayer], direct: [directPayer], depositors: [depositPayer, spendDeposit] },
        ...{ credited, attempts: diary.attempts },
      };
    },
  };
}

export function servedByFlow({ attempts }: Diary): Record<string, number> {
  const served: Record<string, number> = {};
  for (const { flow, status } of attempts) {
    if (status >= 200 && status < 400) served[flow] = (served[flow] ?? 0) + 1;
  }
  return served;
}

/** Sends four chunks without a length. */
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
