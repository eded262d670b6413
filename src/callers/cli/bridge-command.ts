import { randomBytes } from 'node:crypto';
import { UsageError } from '../../lib/arguments.ts';
import { counted } from '../../lib/counted.ts';
import { formatUsd } from '../../lib/money.ts';
import { serviceNames } from '../../lib/service-words.ts';
import { ApiError } from '../bridge/api-error.ts';
import { type Bridge, type BridgeOptions, startBridge } from '../bridge/bridge.ts';
import { findModel, resolve } from '../bridge/catalog.ts';
import type { Call } from '../bridge/speech-call.ts';
import { defineCommand, interruption } from './command.ts';
import { assertCanPay, type Caller, withCaller } from './open-caller.ts';
import type { CommandProcess, Output } from './output.ts';
import { CLEAN_OPTIONS, flowWord, readCleaning, readFlow, readSecret } from './read-values.ts';
import { capsLine, readCaps } from './settings.ts';

const SHUTDOWN_TIMEOUT_MS = 20_000;
/** Short, because programs repeat a request themselves, each time after the bridge has given up. */
const RETRY_TIMEOUT_MS = 10_000;
const TOKEN = 'SPEECHGATE_BRIDGE_TOKEN';
const OPEN_WARNING =
  'Anyone who can reach this address and has your token can spend your money, up to your caps. The connection is not encrypted.';
const END_TEXTS = { spoken: '', left: 'program disconnected', broken: 'cut off', refused: 'refused' };

const OPTIONS = {
  port: { type: 'string', default: '8787' },
  host: { type: 'string' },
  'allow-origin': { type: 'string', multiple: true },
  pay: { type: 'string' },
  model: { type: 'string' },
  voice: { type: 'string' },
  'no-durable': { type: 'boolean', default: false },
  'max-per-call': { type: 'string' },
  'max-per-day': { type: 'string' },
  'max-total': { type: 'string' },
  'token-file': { type: 'string' },
  'no-token': { type: 'boolean', default: false },
  ...CLEAN_OPTIONS,
} as const;

export const bridgeCommand = defineCommand({
  usage: `speechgate bridge
Serves OpenAI's speech API to programs on this machine, and pays for their requests, until Ctrl-C.
Each request prints a line with its price and the total to standard error; with --json, a JSON document to standard output.
  --port PORT          the port, 0 for any free one; default: 8787
  --pay FLOW           card, x402 or prepaid; default: as set by speechgate connect
  --model MODEL        replaces an unknown model of a program
  --voice VOICE        replaces an unknown voice; default: a fixed voice of the model for each of OpenAI's names
  --clean FORMAT       speaks only the words of input in markdown or html; default: off
  --no-emoji           leaves emoji out
  --no-durable         card credit only: streams the audio as it is spoken, but a cut response can't be fetched again
  --max-per-call USD   maximum price of a request; these three override the caps of speechgate connect
  --max-per-day USD    maximum spending per UTC day, by all commands together
  --max-total USD      maximum spending in total
Programs must send a token as their API key. The bridge prints a new one at each start, unless you set one.
  --token-file FILE    reads the token from FILE; or set ${TOKEN}
  --no-token           accepts any API key: every user of this machine can spend
Containers and web pages can use the bridge too, if you have set a token:
  --host ADDRESS       listens on this address of the machine instead of on 127.0.0.1; 0.0.0.0 means all addresses
  --allow-origin URL   lets pages of this origin use the bridge, such as http://localhost:3000; may be repeated`,
  example: 'speechgate bridge --max-per-day 0.50',
  options: OPTIONS,
  run: async (values, { output, host }) => {
    const port = readPort(values.port);
    const cleaning = readCleaning(values);
    const allowedOrigins = (values['allow-origin'] ?? []).map(readOrigin);
    const token = await readToken(values, host);
    if (token.isNew || token.value === null) assertLocal(values.host, allowedOrigins);
    const options = {
      timeoutMs: RETRY_TIMEOUT_MS,
      pay: values.pay === undefined ? undefined : readFlow(values.pay, '--pay'),
      caps: readCaps({
        perCallMicroUsd: ['--max-per-call', values['max-per-call']],
        perDayMicroUsd: ['--max-per-day', values['max-per-day']],
        totalMicroUsd: ['--max-total', values['max-total']],
      }),
    };
    await withCaller(host, options, async (caller) => {
      assertCanPay(caller);
      await assertFallbacks(caller, values);
      const stop = interruption(host);
      let totalMicroUsd = 0n;
      const bridge = await listen({
        client: caller.client,
        budget: caller.budget,
        flow: caller.settings.flow,
        host: values.host,
        port,
        allowedOrigins,
        token: token.value,
        isDurable: !values['no-durable'],
        saved: caller.saved,
        cleaning,
        fallbacks: { model: values.model, voice: values.voice },
        onCall: (call) => {
          totalMicroUsd += call.chargedMicroUsd;
          output.note(lineOf(call, totalMicroUsd));
          if (output.isJson) output.done(documentOf(call, totalMicroUsd), []);
        },
      });
      try {
        await announce(bridge, caller, token, output);
        if (values.host !== undefined) output.note(OPEN_WARNING);
        await new Promise<void>((resolve) => stop.addEventListener('abort', () => resolve(), { once: true }));
        output.note('The bridge finishes the running requests, then shuts down.');
      } finally {
        await bridge.close(SHUTDOWN_TIMEOUT_MS);
      }
      output.note(`Spent $${formatUsd(totalMicroUsd)}.`);
    });
  },
});

function lineOf(
  { asked, spokenWith, end, chargedMicroUsd, isRepeated, leftMicroUsd, error }: Call,
  totalMicroUsd: bigint,
): string {
  return [
    new Date().toTimeString().slice(0, 8),
    `$${formatUsd(chargedMicroUsd)}`,
    asked && `${counted(asked.characters, 'character')} as ${asked.format}`,
    spokenWith && voiceOf(spokenWith, asked?.voice),
    asked && asked.ignored.length > 0 && `without ${asked.ignored.join(', ')}`,
    isRepeated && 'repeated',
    END_TEXTS[end],
    error && `${error.code}: ${error.message}`,
    `total $${formatUsd(totalMicroUsd)}`,
    leftMicroUsd !== null && `left $${formatUsd(leftMicroUsd)}`,
  ]
    .filter(Boolean)
    .join('  ');
}

function voiceOf({ model, voice }: NonNullable<Call['spokenWith']>, asked: string | undefined): string {
  const isOther = asked !== undefined && asked !== voice && !voice.endsWith(`_${asked}`);
  return `${model} ${voice}${isOther ? ` for ${asked}` : ''}`;
}

function documentOf({ error, ...call }: Call, totalMicroUsd: bigint): object {
  const errorMember = error && { error: { status: error.status, code: error.code, message: error.message } };
  return { ...call, ...errorMember, totalMicroUsd };
}

/** Otherwise programs would silently get another model or voice. @throws UsageError */
async function assertFallbacks({ client }: Caller, { model, voice }: { model?: string; voice?: string }) {
  if (model === undefined && voice === undefined) return;
  const catalog = await client.models();
  if (model !== undefined && !findModel(catalog, model)) {
    const known = serviceNames(catalog.models.map(({ id }) => id));
    throw new UsageError(`--model ${model} does not exist. Use one of ${known}. Nothing was started.`);
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
    const { code = '' } = error as NodeJS.ErrnoException;
    if (['EADDRNOTAVAIL', 'ENOTFOUND', 'EAI_AGAIN'].includes(code)) {
      throw new UsageError(
        `--host ${options.host} is not an address of this machine. Name one, or 0.0.0.0 for all of them.`,
      );
    }
    if (code !== 'EADDRINUSE') throw error;
    throw new UsageError(`--port ${options.port} is in use. Name another port, or 0 for any free one.`);
  }
}

async function announce({ url }: Bridge, caller: Caller, { value, isNew }: Token, output: Output): Promise<void> {
  const { flow, baseUrl } = caller.settings;
  const { leftMicroUsd } = await caller.budget.read(flow);
  const apiKey = isNew ? value : undefined;
  output.done({ url, ...(isNew && { apiKey }), flow: flowWord(flow), service: baseUrl, leftMicroUsd }, [
    `export OPENAI_BASE_URL=${url}`,
    ...(isNew ? [`export OPENAI_API_KEY=${apiKey}`] : []),
  ]);
  if (value === null)
    output.note(
      '--no-token lets every user of this machine spend your money, up to your caps. Any OPENAI_API_KEY works.',
    );
  else if (!isNew) output.note('Set OPENAI_API_KEY to your token.');
  output.note(`Paid by ${flowWord(flow)} at ${baseUrl}.`);
  output.note(capsLine(caller.caps));
  if (leftMicroUsd !== null) output.note(`$${formatUsd(leftMicroUsd)} of the budget is left.`);
}

function readPort(text: string): number {
  const port = Number(text);
  if (/^\d{1,5}$/.test(text) && port < 65_536) return port;
  throw new UsageError(`--port must be a number from 0 to 65535, not ${text}.`);
}

function readOrigin(text: string): string {
  if (/^[a-z][a-z0-9+.-]*:\/\/[^/?#\s]+$/.test(text)) return text;
  throw new UsageError(`--allow-origin must be the origin of a page, such as http://localhost:3000, not ${text}.`);
}

/** @throws UsageError */
function assertLocal(host: string | undefined, origins: readonly string[]): void {
  if (host === undefined && origins.length === 0) return;
  const option = host === undefined ? '--allow-origin' : '--host';
  throw new UsageError(
    `${option} needs a token that you choose. Set it with --token-file FILE or ${TOKEN}. Nothing was started.`,
  );
}

interface Token {
  readonly value: string | null;
  readonly isNew: boolean;
}

async function readToken(
  values: { 'token-file'?: string; 'no-token': boolean },
  { env, stdin }: CommandProcess,
): Promise<Token> {
  const path = values['token-file'];
  const variable = env[TOKEN]?.trim() || undefined;
  if (values['no-token']) {
    if (path === undefined && variable === undefined) return { value: null, isNew: false };
    throw new UsageError(`--no-token conflicts with --token-file and ${TOKEN}. Remove --no-token, or set no token.`);
  }
  if (path !== undefined) {
    const value = await readSecret(path, '--token-file', stdin);
    if (value !== '') return { value, isNew: false };
    throw new UsageError(`The file of --token-file, ${path}, is empty. Write a token to it.`);
  }
  if (variable !== undefined) return { value: variable, isNew: false };
  return { value: randomBytes(24).toString('base64url'), isNew: true };
}
