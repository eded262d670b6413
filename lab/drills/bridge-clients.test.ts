/** OpenAI's client, old and new, and the AI SDK against the bridge: at most one charge for a call, and no long wait. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { startBridge } from '../../src/callers/bridge/bridge.ts';
import { cardCredits, directX402, type PaymentWay, prepaid, Speechgate } from '../../src/callers/client/index.ts';
import { usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { testChain, wallet } from '../../test/support/chain.ts';
import { startCommand } from '../../test/support/child.ts';
import { pinsOf, startPaidGateway } from '../../test/support/client.ts';
import { type FaultyLine, overLine } from '../../test/support/faulty-line.ts';
import { domainOf, fundedWallet } from '../../test/support/prepaid.ts';
import { silentMp3 } from '../../test/support/silent-audio.ts';
import { type Mode, mp3, openAiError, resetInBody, tooManyRequests } from '../../test/support/stub-upstream.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import type { X402Gateway } from '../../test/support/x402.ts';

const PACKAGES = ['openai6@npm:openai@6.49.0', 'openai7@npm:openai@7.59.0', 'ai@7.0.173', '@ai-sdk/openai@4.0.118'];
const CLIENTS = ['openai6', 'openai7', 'ai'] as const;
const WAYS = ['card', 'card, streamed', 'direct', 'prepaid'] as const;
const { chain } = await testChain();
const TEXT = 'Hello world';
const PRICE = 198n;
const FUNDS = 1_000_000n;
const LONGEST_MS = 70_000;
/** As `speechgate bridge` sets it. */
const RETRY_TIMEOUT_MS = 10_000;

/** Speaks once for each address, and prints what came of it. */
const PROGRAM = `
import { createOpenAI } from '@ai-sdk/openai';
import { generateSpeech } from 'ai';
import OpenAI6 from 'openai6';
import OpenAI7 from 'openai7';

const [client, text, ...urls] = process.argv.slice(2);
const order = { model: 'tts-1', voice: 'alloy', input: text };

/** Cuts the first response at this share of its body; at 0, before its head is here. */
const cutting = (share) => async (...call) => {
  const response = await fetch(...call);
  if (share === undefined || !response.ok) return response;
  const bytes = new Uint8Array(await response.arrayBuffer());
  const part = bytes.subarray(0, Math.floor(bytes.length * share));
  const cut = new TypeError('fetch failed', { cause: { code: 'ECONNRESET' } });
  const isHead = share === 0;
  share = undefined;
  if (isHead) throw cut;
  const parts = [part];
  const pull = (controller) => (parts.length > 0 ? controller.enqueue(parts.pop()) : controller.error(cut));
  return new Response(new ReadableStream({ pull }), response);
};

async function speak(address) {
  const [baseURL, share] = address.split('#');
  const options = { baseURL, apiKey: 'anything', fetch: cutting(share ? Number(share) : undefined) };
  if (client === 'ai') {
    const model = createOpenAI(options).speech('tts-1');
    return (await generateSpeech({ model, text, voice: 'alloy' })).audio.uint8Array.length;
  }
  const OpenAI = client === 'openai6' ? OpenAI6 : OpenAI7;
  return (await (await new OpenAI(options).audio.speech.create(order)).arrayBuffer()).byteLength;
}
async function end(url) {
  const startedAt = performance.now();
  const what = await speak(url).then(
    (bytes) => ({ bytes }),
    (error) => ({ error: String((error.lastError ?? error).statusCode ?? error.status ?? error.message) }),
  );
  return { ...what, ms: Math.round(performance.now() - startedAt) };
}
// Those that wait do so together, after the others.
const ends = urls.map(() => undefined);
const isSlow = (url) => url.endsWith('#slow');
for (const [at, url] of urls.entries()) if (!isSlow(url)) ends[at] = await end(url);
await Promise.all(urls.map(async (url, at) => {
  if (isSlow(url)) ends[at] = await end(url.replace('#slow', ''));
}));
console.log('ENDS ' + JSON.stringify(ends));
`;

interface Fault {
  readonly upstream?: Mode;
  readonly line?: Partial<FaultyLine>;
  /** Where the bridge's first response is cut: a share of its body. */
  readonly cut?: number;
  /** Clients wait before they repeat. */
  readonly isSlow?: boolean;
}

const cutAudio = (cutAt: number): Fault => ({ line: { cutAt, isCutOnce: true } });

const FAULTS: Readonly<Record<string, Fault>> = {
  none: {},
  'a lasting refusal': { upstream: openAiError(400) },
  'a passing refusal': { upstream: openAiError(500), isSlow: true },
  'the upstream breaks off': { upstream: resetInBody(), isSlow: true },
  'the service breaks off at the head': cutAudio(0),
  'the service breaks off in the middle': cutAudio(0.5),
  'the service breaks off before the last chunk': cutAudio(0.999),
  'the bridge breaks off at the head': { cut: 0 },
  'the bridge breaks off in the middle': { cut: 0.5 },
  'the bridge breaks off before the last chunk': { cut: 0.999 },
  'Retry-After 1': { line: { retryAfter: 1 }, isSlow: true },
  'Retry-After 60': { line: { retryAfter: 60 }, isSlow: true },
  'Retry-After 3600': { line: { retryAfter: 3_600 }, isSlow: true },
  'Retry-After 60 of the upstream': { upstream: tooManyRequests('60'), isSlow: true },
};

interface Cell {
  readonly fault: string;
  readonly way: (typeof WAYS)[number];
  readonly client: (typeof CLIENTS)[number];
  readonly url: string;
  charged(): Promise<bigint>;
}

interface End {
  readonly bytes?: number;
  readonly error?: string;
  readonly ms: number;
}

async function payerOf(gateway: X402Gateway, way: Cell['way']) {
  if (way === 'prepaid') {
    const depositor = await fundedWallet({ ...gateway, domain: domainOf(gateway.payTo) }, FUNDS);
    return { pay: prepaid(depositor.wallet), charged: async () => FUNDS - (await depositor.balance()) };
  }
  if (way === 'direct') {
    const payer = await wallet(chain.client, FUNDS);
    return { pay: directX402(payer), charged: async () => FUNDS - (await usdcBalance(chain.client, payer.address)) };
  }
  const account = await gateway.fund(Number(FUNDS / 10_000n));
  return { pay: cardCredits(account), charged: async () => FUNDS - (await gateway.balance(account)) };
}

async function startCell(t: Test, gateway: X402Gateway, cell: Omit<Cell, 'url' | 'charged'>): Promise<Cell> {
  const { line, cut, isSlow } = FAULTS[cell.fault] as Fault;
  const { pay, charged }: { pay: PaymentWay; charged: Cell['charged'] } = await payerOf(gateway, cell.way);
  const client = new Speechgate({
    ...{ baseUrl: gateway.config.baseUrl, pay, trust: pinsOf(gateway), timeoutMs: RETRY_TIMEOUT_MS },
    fetch: overLine({ cutAt: undefined, isCutOnce: false, retryAfter: undefined, ...line }),
  });
  const isDurable = cell.way !== 'card, streamed';
  const bridge = await startBridge({ client, budget: undefined, flow: pay.flow, port: 0, token: null, isDurable });
  t.teardown(() => bridge.close(1_000));
  const mark = isSlow ? '#slow' : `#${cut ?? ''}`;
  return { ...cell, url: `${bridge.url}${mark}`, charged };
}

/** @param upstream how the gateway's upstream answers */
async function startGateway(t: Test, upstream: Mode): Promise<X402Gateway> {
  const env = { JOB_SIGNING_SECRET: 'a secret of links of 32 bytes or more' };
  const gateway = await startPaidGateway(t, chain, env, { worker: true });
  gateway.upstream.mode = upstream;
  return gateway;
}

async function startCells(t: Test): Promise<Cell[]> {
  const cells: Cell[] = [];
  const sound = await startGateway(t, mp3());
  for (const [fault, { upstream }] of Object.entries(FAULTS)) {
    const gateway = upstream ? await startGateway(t, upstream) : sound;
    for (const way of WAYS) {
      for (const client of CLIENTS) cells.push(await startCell(t, gateway, { fault, way, client }));
    }
  }
  return cells;
}

async function installClients(t: Test): Promise<string> {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, 'package.json'), '{}\n');
  await writeFile(join(folder, 'speak.mjs'), PROGRAM);
  const install = ['npm', 'install', '--prefer-offline', '--ignore-scripts', '--loglevel=error', ...PACKAGES];
  const installed = startCommand(t, install, { cwd: folder });
  assert.equal(await installed.ended(), 0, installed.output());
  return folder;
}

test('three clients are charged at most once for a call, and none waits long', async (t) => {
  const folder = await installClients(t);
  const cells = await startCells(t);
  const told = new Map<string, string>();
  const wrong: string[] = [];
  await Promise.all(
    CLIENTS.map(async (client) => {
      const own = cells.filter((cell) => cell.client === client);
      const command = [process.execPath, 'speak.mjs', client, TEXT, ...own.map(({ url }) => url)];
      const child = startCommand(t, command, { cwd: folder });
      assert.equal(await child.ended(), 0, child.output());
      const ends = JSON.parse(/^ENDS (.*)$/m.exec(child.output())?.[1] ?? '[]') as End[];
      assert.equal(ends.length, own.length);
      for (const [at, { fault, way, charged }] of own.entries()) {
        const { bytes, error, ms } = ends[at] as End;
        const times = Number(await charged()) / Number(PRICE);
        const cell = `${bytes === undefined ? error : 'audio'}, charged ${times}, ${(ms / 1_000).toFixed(1)} s`;
        told.set(`${fault} | ${way} | ${client}`, cell);
        const isWhole = bytes === undefined || bytes === silentMp3(1_000).length;
        if (times > 1 || ms > LONGEST_MS || !isWhole) wrong.push(`${fault}, ${way}, ${client}: ${cell}`);
      }
    }),
  );
  console.error(`| fault | way | ${CLIENTS.join(' | ')} |`);
  for (const fault of Object.keys(FAULTS)) {
    for (const way of WAYS) {
      console.error(
        `| ${fault} | ${way} | ${CLIENTS.map((client) => told.get(`${fault} | ${way} | ${client}`)).join(' | ')} |`,
      );
    }
  }
  t.strictSame(wrong, []);
});
