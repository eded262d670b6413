import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { ApiError } from '../../bridge/api-error.ts';
import { type Bridge, type BridgeOptions, startBridge } from '../../bridge/bridge.ts';
import { CallLines } from '../../bridge/call-lines.ts';
import { findModel, resolve } from '../../bridge/names.ts';
import type { Call } from '../../bridge/speech-call.ts';
import { formatUsd } from '../../lib/money.ts';
import { serviceNames } from '../../lib/service-words.ts';
import { UsageError } from '../usage-error.ts';
import { assertCanPay } from './can-pay.ts';
import { capsLine, readCaps } from './caps.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { flowWord, readFlow } from './flow-word.ts';
import { interruption } from './interrupt.ts';
import { keptSpeech } from './kept-purchases.ts';
import { type Caller, openCaller } from './open-caller.ts';
import type { Output } from './output.ts';

/** Milliseconds in which what runs may end once the bridge is told to stop. */
const PATIENCE_MS = 20_000;
const TOKEN = 'SPEECHGATE_BRIDGE_TOKEN';
const TOKEN_BYTES = 24;

const OPTIONS = {
  ...COMMON_OPTIONS,
  port: { type: 'string', default: '8787' },
  pay: { type: 'string' },
  model: { type: 'string' },
  voice: { type: 'string' },
  durable: { type: 'boolean', default: false },
  'max-per-call': { type: 'string' },
  'max-per-day': { type: 'string' },
  'max-total': { type: 'string' },
  'token-file': { type: 'string' },
  'no-token': { type: 'boolean', default: false },
} as const;

/** `speechgate bridge` */
await runCommand({
  usage: `speechgate bridge
Speaks OpenAI's speech API to the programs of this machine, and pays for what they ask, until it is stopped (Ctrl-C).
Each request is a line on standard error, with its price and the total; with --json, a JSON document on standard output.
  --port PORT          where it listens, on 127.0.0.1; 8787 otherwise, and 0 takes any that is free
  --pay FLOW           card, x402 or prepaid; otherwise as set by speechgate connect
  --model MODEL        what speaks where a program names a model that the service has not
  --voice VOICE        likewise a voice; otherwise OpenAI's names stand for voices of the model, always the same
  --durable            with card credits: as jobs, whose audio can be fetched again when an answer is lost
  --max-per-call USD   what a request may cost at most; these three go before speechgate connect's
  --max-per-day USD    what may be spent a day (UTC), by all commands together
  --max-total USD      what may be spent at all
Programs have to give a token as their API key: a new one at each start, which is printed, unless you name one.
  --token-file FILE    the token is what is in it; or set ${TOKEN}
  --no-token           any API key will do: every user of this machine can spend`,
  example: 'speechgate bridge --max-per-day 0.50',
  options: OPTIONS,
  maxWords: 0,
  run: async (values, _words, output) => {
    const port = readPort(values.port);
    const token = await readToken(values, process.env[TOKEN]);
    const caller = await openCaller({
      pay: values.pay === undefined ? undefined : readFlow(values.pay, '--pay'),
      caps: readCaps({
        perCallMicroUsd: ['--max-per-call', values['max-per-call']],
        perDayMicroUsd: ['--max-per-day', values['max-per-day']],
        totalMicroUsd: ['--max-total', values['max-total']],
      }),
    });
    assertCanPay(caller);
    await assertSpoken(caller, values);
    const stop = interruption();
    const lines = new CallLines();
    const bridge = await listen({
      ...{
        client: caller.client,
        budget: caller.budget,
        flow: caller.flow,
        port,
        token: token.value,
        isDurable: values.durable,
      },
      kept: keptSpeech(caller.settings.folder),
      fallbacks: { model: values.model, voice: values.voice },
      onCall: (call) => {
        const line = lines.line(call, new Date().toTimeString().slice(0, 8));
        output.note(line);
        if (output.isJson) output.done(documentOf(call, lines.totalMicroUsd), []);
      },
    });
    await announce(bridge, caller, token, output);
    await new Promise<void>((resolve) => stop.addEventListener('abort', () => resolve(), { once: true }));
    output.note('Stopping, once what is being spoken has ended.');
    await bridge.close(PATIENCE_MS);
    output.note(`Spent $${formatUsd(lines.totalMicroUsd)}.`);
  },
});

function documentOf({ error, ...call }: Call, totalMicroUsd: bigint): object {
  const told = error && { error: { status: error.status, code: error.code, message: error.message } };
  return { ...call, ...told, totalMicroUsd };
}

/** @throws UsageError for a model or voice that the service does not have: programs would get another one unasked */
async function assertSpoken({ client }: Caller, given: { readonly model?: string; readonly voice?: string }) {
  const { model, voice } = given;
  if (model === undefined && voice === undefined) return;
  const catalog = await client.models();
  if (model !== undefined && !findModel(catalog, model)) {
    const known = serviceNames(catalog.models.map(({ id }) => id));
    throw new UsageError(`--model ${model} is no model of this service. It has ${known}.`);
  }
  try {
    resolve(catalog, { model, voice }, {});
  } catch (error) {
    if (error instanceof ApiError && error.param === 'voice') throw new UsageError(`--voice: ${error.message}`);
    throw error;
  }
}

async function listen(options: BridgeOptions): Promise<Bridge> {
  try {
    return await startBridge(options);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    throw new UsageError(`--port ${options.port} is taken. Name another one, or 0 for any that is free.`);
  }
}

async function announce({ url }: Bridge, caller: Caller, { value, isNew }: Token, output: Output): Promise<void> {
  const { flow, baseUrl, budget } = caller;
  const { leftMicroUsd } = await budget.read();
  const apiKey = isNew ? value : undefined;
  output.done({ url, ...(isNew && { apiKey }), flow: flowWord(flow), service: baseUrl, leftMicroUsd }, [
    `export OPENAI_BASE_URL=${url}`,
    ...(isNew ? [`export OPENAI_API_KEY=${apiKey}`] : []),
  ]);
  if (value === null)
    output.note('--no-token: every user of this machine can spend here, up to your caps. Any OPENAI_API_KEY will do.');
  else if (!isNew) output.note('OPENAI_API_KEY is the token that you named.');
  output.note(`Paid by ${flowWord(flow)} at ${baseUrl}.`);
  output.note(capsLine(caller.caps));
  if (leftMicroUsd !== null) output.note(`$${formatUsd(leftMicroUsd)} are left of the budget.`);
}

/** @throws UsageError */
function readPort(text: string): number {
  const port = Number(text);
  if (/^\d{1,5}$/.test(text) && port < 65_536) return port;
  throw new UsageError(`--port takes a number from 0 to 65535; it is ${text}.`);
}

interface Token {
  /** Null where every user of this machine may spend. */
  readonly value: string | null;
  /** Made for this start: it is printed, as no other one is. */
  readonly isNew: boolean;
}

/** @throws UsageError */
async function readToken(
  values: { readonly 'token-file'?: string; readonly 'no-token': boolean },
  variable: string | undefined,
): Promise<Token> {
  const path = values['token-file'];
  const said = variable?.trim() || undefined;
  if (values['no-token']) {
    if (path === undefined && said === undefined) return { value: null, isNew: false };
    throw new UsageError(`--no-token is for a bridge without --token-file and ${TOKEN}. Leave one of them out.`);
  }
  if (path !== undefined) {
    const value = (await readFile(path, 'utf8').catch(() => '')).trim();
    if (value !== '') return { value, isNew: false };
    throw new UsageError(`--token-file names ${path}, which can't be read or is empty.`);
  }
  if (said !== undefined) return { value: said, isNew: false };
  return { value: randomBytes(TOKEN_BYTES).toString('base64url'), isNew: true };
}
