/**
 * Bridges and MCP servers that share a budget, killed at random while they buy: at the end the budget's file says what
 * the gateway has charged, and that is within the budget. BUDGET_CALLS is how many calls the budget pays for, BUDGET_KILLS
 * how many processes are killed, BUDGET_IN_FLIGHT how many calls each process has at once.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { type Test, test } from 'tap';
import { prepaid, Speechgate } from '../../../src/callers/client/index.ts';
import { audit } from '../../../src/ledger/audit.ts';
import { toolsOf } from '../../support/agent.ts';
import { askBridge } from '../../support/bridge.ts';
import { startPrepaidCaller } from '../../support/caller.ts';
import { startCommand } from '../../support/child.ts';
import { dated, pinsOf } from '../../support/client.ts';
import { testDatabase } from '../../support/database.ts';
import { shiftDatabaseClock } from '../../support/database-clock.ts';
import { PROJECT } from '../../support/project.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';
import { openBudget } from './support.ts';

const CALLS = Number(process.env.BUDGET_CALLS ?? 60);
const KILL_POINTS = Number(process.env.BUDGET_KILLS ?? 4);
const IN_FLIGHT = Number(process.env.BUDGET_IN_FLIGHT ?? 8);
/** Of each text by the default model. */
const PRICE = 198n;
const LIMIT = BigInt(CALLS) * PRICE + PRICE / 2n;
const DEPOSIT = LIMIT * 2n;
/** Longer than a signature is valid, and the client's leeway. */
const LATER_MS = 140_000;
const TIMEOUT_MS = 120_000;
let texts = 0;
/** As long as `Hello world`, and never the same: equal calls of an MCP server share one purchase. */
const nextText = (): string => `Hello ${String(++texts).padStart(5, '0')}`;

/** A process that buys speech for others. */
interface Speaker {
  /** Rejects when the process ended before it answered. */
  speak(): Promise<'spoken' | 'over the budget'>;
  kill(): Promise<void>;
}

type StartSpeaker = (t: Test, env: Readonly<Record<string, string>>) => Promise<Speaker>;

const startBridge: StartSpeaker = async (t, env) => {
  const child = startCommand(t, [process.execPath, 'dist/speechgate.js', 'bridge', '--port', '0', '--no-token'], {
    env,
  });
  const [, url] = await child.printed(/OPENAI_BASE_URL=(\S+)/, TIMEOUT_MS);
  return {
    speak: async () => {
      const response = await askBridge(`${url}`, { input: nextText() });
      if (response.ok) return (await response.arrayBuffer()) && 'spoken';
      assert.match(await response.text(), /over_cap/);
      return 'over the budget';
    },
    kill: async () => void (await child.stop('SIGKILL')),
  };
};

const startMcp: StartSpeaker = async (t, env) => {
  const folder = await temporaryFolder(t);
  const { PATH = '', HOME = '' } = process.env;
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: ['dist/speechgate.js', 'mcp', '--folder', folder],
    cwd: PROJECT,
    env: { PATH, HOME, ...env },
  });
  const client = new Client({ name: 'agent', version: '1' });
  const closed = new Promise<void>((resolve) => (client.onclose = resolve));
  await client.connect(transport, { timeout: TIMEOUT_MS });
  t.teardown(() => client.close());
  return {
    speak: async () => {
      const { isError, text } = await toolsOf(client)('speak', { text: nextText() }, { timeout: TIMEOUT_MS });
      if (!isError) return 'spoken';
      assert.match(text, /over the budget/);
      return 'over the budget';
    },
    kill: async () => {
      process.kill(transport.pid as number, 'SIGKILL');
      await closed;
    },
  };
};

const told = { spoken: 0, refused: 0, unanswered: 0, kills: 0 };

test('killed callers never overspend, and the budget matches the charges', async (t) => {
  const { url: databaseUrl } = await testDatabase(t);
  const clock = await shiftDatabaseClock(databaseUrl);
  t.teardown(() => clock.close());
  const caller = await startPrepaidCaller(t, DEPOSIT, { databaseUrl });
  const { gateway, wallet, budgetPath } = caller;
  const env = { ...caller.env, ...{ SPEECHGATE_MAX_TOTAL: usd(LIMIT), SPEECHGATE_MAX_PER_DAY: usd(LIMIT) } };
  await Promise.all([startBridge, startMcp, startBridge].map((start) => spendAndDie(t, start, env)));
  // By the clock that is moved below: what was signed and not sent is set aside until its signature has ended.
  const budget = await openBudget(t, budgetPath, { totalMicroUsd: LIMIT }, () => Date.now());
  const before = await budget.read();
  t.ok(before.spentMicroUsd + before.reservedMicroUsd <= LIMIT);
  const charged = async () => DEPOSIT - (await caller.balance());
  await until(async () => (await pendingHolds(gateway.db)) === 0, TIMEOUT_MS);
  t.ok((await charged()) <= LIMIT, 'what was charged is within the budget');
  const lost = await budget.lost();
  const unheard = (await charged()) / PRICE - BigInt(told.spoken);
  await clock.advance(`${LATER_MS} milliseconds`);
  const now = Date.now;
  Date.now = () => now() + LATER_MS;
  t.teardown(() => (Date.now = now));
  const client = new Speechgate({
    baseUrl: gateway.url,
    pay: prepaid(wallet),
    trust: pinsOf(gateway),
    fetch: async (...call) => dated(await fetch(...call)),
  });
  await budget.concludeLost(client);
  t.strictSame(await budget.lost(), []);
  const { spentMicroUsd, reservedMicroUsd } = await budget.read();
  t.strictSame([spentMicroUsd, reservedMicroUsd], [await charged(), 0n]);
  t.ok(spentMicroUsd <= LIMIT && spentMicroUsd >= BigInt(told.spoken) * PRICE);
  t.strictSame(await audit(gateway.db), []);
  t.ok(told.refused > 0, 'the budget was asked for more than it has');
  const { spoken, refused, unanswered, kills } = told;
  t.comment(
    `${kills} kills; ${spoken} answered with speech, ${unanswered} not answered, ${unheard} of them charged, ${refused} ` +
      `over the budget; limit ${LIMIT}, charged ${spentMicroUsd} micro-USD; lost at the end: ${lost.length}`,
  );
});

/** Lets a process buy for several callers at once, kills it after some answers, and starts the next one, to the end. */
async function spendAndDie(t: Test, start: StartSpeaker, env: Readonly<Record<string, string>>): Promise<void> {
  for (let isOver = false; !isOver; ) {
    const speaker = await start(t, env);
    const isLast = told.kills >= KILL_POINTS;
    if (!isLast) told.kills++;
    let answersLeft = isLast ? Number.POSITIVE_INFINITY : Math.floor((Math.random() * CALLS) / KILL_POINTS);
    let isDead = false;
    let kill = () => {};
    const killed = new Promise<void>((resolve) => (kill = resolve));
    const call = async () => {
      for (;;) {
        if (isDead) return;
        const end = await speaker.speak().catch((error) => {
          if (!isDead || error instanceof assert.AssertionError) throw error;
        });
        if (end === 'spoken') told.spoken++;
        else if (end === 'over the budget') told.refused++;
        else told.unanswered++;
        if (--answersLeft <= 0) kill();
        // Who is refused asks again only as long as there are processes to kill.
        if (isLast && end === 'over the budget') return;
      }
    };
    const calls = Promise.all(Array.from({ length: IN_FLIGHT }, call));
    await Promise.race([killed, calls]);
    if (!isLast) await sleep(Math.random() * 100);
    isDead = true;
    isOver = isLast;
    await speaker.kill();
    await calls;
  }
}

async function pendingHolds(db: Parameters<typeof audit>[0]): Promise<number> {
  return (await db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute()).length;
}

const usd = (microUsd: bigint): string => `${microUsd / 1_000_000n}.${String(microUsd % 1_000_000n).padStart(6, '0')}`;
