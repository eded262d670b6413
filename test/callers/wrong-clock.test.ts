/** A caller's clock that is off is named, with how far, by every program that pays. */
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Test, test } from 'tap';
import { SavedPurchases } from '../../src/callers/cli/saved-purchases.ts';
import { prepaid, Speechgate } from '../../src/callers/client/index.ts';
import { startMcpAgent } from '../support/agent.ts';
import { askBridge, bridgeOf } from '../support/bridge.ts';
import { startPrepaidCaller } from '../support/caller.ts';
import { callerCommand } from '../support/caller-command.ts';
import { pinsOf } from '../support/client.ts';
import { openBudget } from './budget/support.ts';

const text = 'Hello world';
const realNow = Date.now;

/** Each program, and how it tells of what it failed at. */
async function openPrograms(t: Test) {
  const caller = await startPrepaidCaller(t, 1_000_000n);
  const { gateway, wallet, env, budgetPath } = caller;
  const budget = await openBudget(t, budgetPath);
  const options = { baseUrl: gateway.url, pay: prepaid(wallet), trust: pinsOf(gateway) };
  const client = new Speechgate({ ...options, budget });
  const path = join(dirname(budgetPath), 'speech');
  await mkdir(path);
  const parts = { client, budget, flow: 'prepaid' as const };
  const saved = new SavedPurchases(dirname(budgetPath));
  const { url } = await bridgeOf(t, client, { budget, flow: 'prepaid', saved });
  const { call } = await startMcpAgent(t, dirname(budgetPath), parts);
  let asked = 0;
  const failed = (work: Promise<unknown>) =>
    work.then(
      () => 'done',
      ({ message }: Error) => message,
    );
  const programs: Readonly<Record<string, () => Promise<string>>> = {
    'client.speak': () => failed(client.speak({ text }).then((speech) => speech.bytes())),
    'client.balance': () => failed(client.balance()),
    say: async () => (await callerCommand(env, 'say', text, '--out', join(path, 'said.mp3'))).err,
    balance: async () => (await callerCommand(env, 'balance')).output,
    bridge: async () => {
      // The bridge delivers a text that it has bought again.
      asked += 1;
      const response = await askBridge(url, { input: `${text} ${asked}` });
      return Buffer.from(await response.arrayBuffer()).toString('latin1');
    },
    'MCP speak': async () => (await call('speak', { text })).text,
    'MCP balance': async () => (await call('balance')).text,
  };
  return { ...caller, programs };
}

test('a clock that is off is named by every program, and nothing is charged', async (t) => {
  const { programs, balance } = await openPrograms(t);
  let aheadSeconds = 0;
  t.intercept(Date, 'now', { value: () => realNow() + aheadSeconds * 1000 });
  for (const [name, run] of Object.entries(programs)) t.notMatch(await run(), /charged|Nothing/, name);
  const before = await balance();
  for (const [seconds, words] of [
    [45, /clock of this machine is 4[456] s ahead of the service's clock\. Correct it/],
    [
      -150,
      /clock of this machine is 1(49|50|51) s behind the service's clock\. Correct it|Check the clock of this machine/,
    ],
  ] as const) {
    aheadSeconds = seconds;
    for (const [name, run] of Object.entries(programs))
      await t.test(`${name}, ${seconds} s`, async (t) => t.match(await run(), words));
  }
  t.equal(await balance(), before);
});
