/** Callers of a service that lies in every answer: caps hold, and every program ends when it is told to. */
import assert from 'node:assert/strict';
import { dirname } from 'node:path';
import type { Test } from 'tap';
import { startBridge } from '../../../src/callers/bridge/bridge.ts';
import {
  cardCredits,
  directX402,
  type Flow,
  type PaymentWay,
  prepaid,
  Speechgate,
  SpeechgateError,
} from '../../../src/callers/client/index.ts';
import { startMcpAgent } from '../../support/agent.ts';
import { askBridge } from '../../support/bridge.ts';
import { pinsOf } from '../../support/client.ts';
import { Dice, type HostileService, startHostileService } from '../../support/hostile-service.ts';
import { fundedWallet, type PrepaidGateway, startPrepaidGateway } from '../../support/prepaid.ts';
import { budgetPath, openBudget } from '../budget/support.ts';

const SEED = Number(process.env.HOSTILE_SEED ?? 37);
const ORDER = { text: 'Hello world' };
const CAP = 12n * 198n;
const CALLS = 16;
/** Calls at a time. */
const TOGETHER = 4;
const FLOWS: readonly Flow[] = ['card', 'direct', 'prepaid'];
/** Milliseconds after which a call is told to end. */
const TOLD_AFTER_MS = 300;
/** Milliseconds in which a program that was told to end has ended. */
const ENDS_MS = 60_000;

async function payWith(
  gateway: PrepaidGateway,
  flow: Flow,
): Promise<{ readonly pay: PaymentWay; readonly address: string }> {
  if (flow === 'card') return { pay: cardCredits(await gateway.fund(100)), address: '' };
  const { wallet } = await fundedWallet(gateway, 1_000_000n);
  return { pay: flow === 'prepaid' ? prepaid(wallet) : directX402(wallet), address: wallet.address };
}

/** Fails when what was told to end goes on. */
async function ends(what: string, work: Promise<unknown>): Promise<unknown> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new assert.AssertionError({ message: `${what} goes on, seed ${SEED}` })), ENDS_MS);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

type Program = (t: Test, client: Speechgate, flow: Flow, path: string) => Promise<(dice: Dice) => Promise<void>>;

const isTyped = (error: unknown) =>
  error instanceof SpeechgateError ||
  (error as Error).name === 'AbortError' ||
  (error as Error).name === 'TimeoutError';

/** Calls of the client, each told to end. */
const library: Program = async (_t, client) => async (dice) => {
  const signal = AbortSignal.timeout(TOLD_AFTER_MS);
  const calls: Readonly<Record<string, () => Promise<unknown>>> = {
    stream: () => client.speak(ORDER, { signal }).then(({ audio }) => audio.pipeTo(new WritableStream(), { signal })),
    speak: () => client.speak(ORDER, { signal, durable: true }).then((speech) => speech.bytes()),
    models: () => client.models({ signal }),
    voices: () => client.voices(undefined, { signal }),
    quote: () => client.quote(ORDER, { signal }),
    balance: () => client.balance({ signal }),
  };
  const name = dice.of(Object.keys(calls));
  const call = calls[name] as () => Promise<unknown>;
  const error = await ends(
    name,
    call().catch((error) => error),
  );
  if (error instanceof Error) assert.ok(isTyped(error), `seed ${SEED}: ${error.stack}`);
};

/** Programs that ask the bridge, and leave. */
const bridged: Program = async (t, client, flow) => {
  const bridge = await startBridge({ client, budget: undefined, flow, port: 0, token: null });
  t.teardown(() => ends('the bridge', bridge.close(100)));
  return async (dice) => {
    const signal = AbortSignal.timeout(TOLD_AFTER_MS);
    const response_format = dice.of(['mp3', 'wav', 'pcm']);
    const asked =
      dice.below(4) === 0
        ? fetch(`${bridge.url}/models`, { signal })
        : askBridge(bridge.url, { response_format }, signal);
    await ends(
      'a request of the bridge',
      asked.then((response) => response.arrayBuffer()).catch(() => {}),
    );
  };
};

/** Calls of an agent, which its host cancels. */
const agent: Program = async (t, client, flow, path) => {
  const budget = await openBudget(t, path);
  const { client: host, call } = await startMcpAgent(t, dirname(path), { client, budget, flow });
  t.teardown(() => ends('the MCP server', host.close()));
  return async (dice) => {
    const signal = AbortSignal.timeout(TOLD_AFTER_MS);
    const name = dice.of(['speak', 'speak', 'quote', 'list_voices', 'balance']);
    const args = name === 'speak' || name === 'quote' ? ORDER : {};
    const told = await ends(
      'a tool',
      call(name, args, { signal }).catch(() => {}),
    );
    const text = JSON.stringify((told as { text?: unknown } | undefined)?.text ?? '');
    assert.ok(!/\\u001b|\\u202e|\u202e|\\u0000/.test(text), `seed ${SEED}: ${text.slice(0, 2000)}`);
  };
};

/** Runs each program in each flow until the service has lied so often. */
export async function runAgainstLies(t: Test, lies: number, onRound?: () => void): Promise<void> {
  const hostile = await startHostileService(t, new Dice(SEED));
  const gateway = await startPrepaidGateway(t, { BASE_URL: hostile.url }, { worker: true });
  hostile.target = gateway.url;
  const dice = new Dice(SEED + 1);
  while (hostile.lies < lies) {
    for (const flow of FLOWS) {
      for (const program of [library, bridged, agent]) {
        const title = `${program.name}, ${flow}, after ${hostile.lies} lies`;
        await t.test(title, (t) => round(t, { hostile, gateway, program, flow, dice }));
        onRound?.();
      }
    }
    if (!t.passing()) return;
  }
}

interface Round {
  readonly hostile: HostileService;
  readonly gateway: PrepaidGateway;
  readonly program: Program;
  readonly flow: Flow;
  readonly dice: Dice;
}

/** Calls of one program while the service lies. What was signed is counted, whatever was said of it. */
async function round(t: Test, { hostile, gateway, program, flow, dice }: Round): Promise<void> {
  const path = await budgetPath(t);
  const budget = await openBudget(t, path, { totalMicroUsd: CAP });
  const trust = flow === 'card' ? [] : pinsOf(gateway);
  const { pay, address } = await payWith(gateway, flow);
  const client = new Speechgate({ baseUrl: hostile.url, pay, trust, budget, timeoutMs: 100 });
  const call = await program(t, client, flow, path);
  hostile.isLying = true;
  for (let calls = 0; calls < CALLS; calls += TOGETHER)
    await Promise.all(Array.from({ length: TOGETHER }, () => call(dice)));
  hostile.isLying = false;
  const signed = hostile.signedBy(address);
  assert.ok(signed <= CAP, `seed ${SEED}: ${signed} signed of ${CAP}`);
  const { spentMicroUsd, reservedMicroUsd } = await budget.read();
  assert.ok(
    spentMicroUsd + reservedMicroUsd >= signed,
    `seed ${SEED}: ${spentMicroUsd} + ${reservedMicroUsd} of ${signed}`,
  );
}
