import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { KeptSpeech } from '../budget/kept-speech.ts';
import type { Purchases } from '../budget/purchases.ts';
import { AudioLostError, OutcomeUnknownError, ServiceError } from '../client/index.ts';
import type { Flow } from '../client/pending-purchase.ts';
import type { Receipt } from '../client/speech.ts';
import { formatUsd } from '../lib/money.ts';
import { ApiError, invalid, NO_RETRY } from './api-error.ts';
import type { AudioFormat } from './audio/formats.ts';
import type { Catalog } from './catalog.ts';
import { chargedHeaders, type Delivery, deliver, priceHeaders, UnconvertedError } from './deliver.ts';
import { type Fallbacks, resolve } from './names.ts';
import { readJson } from './read-json.ts';
import { readSpeechRequest, type SpeechRequest } from './speech-request.ts';
import { toApiError } from './to-api-error.ts';

/** What became of one request for speech. */
export interface Call {
  /** What the program asked for; undefined where that could not be read. */
  readonly asked?: { readonly format: AudioFormat; readonly characters: number; readonly voice: string | undefined };
  /** The ids of the catalog that were spoken with. */
  readonly spokenWith?: { readonly model: string; readonly voice: string };
  /** `refused`: nothing was bought. `broken`: it was, and the program has no whole audio. */
  readonly end: Delivery | 'refused' | 'broken';
  /** The most that it may have been, where the answer was lost. */
  readonly chargedMicroUsd: bigint;
  /** What the budget still allows; null without one, and where nothing was bought. */
  readonly leftMicroUsd: bigint | null;
  readonly error?: ApiError;
}

export interface SpeechParts {
  readonly catalog: Catalog;
  readonly purchases: Purchases;
  readonly fallbacks: Fallbacks;
  readonly flow: Flow;
  readonly kept: Pick<KeptSpeech, 'keepAudio'> | undefined;
  /** What the budget still allows, in micro-USD; null without one. */
  readonly left: () => Promise<bigint | null>;
}

/** Answers a request for speech, and tells what became of it. Never throws. */
export async function answerSpeech(
  parts: SpeechParts,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<Call> {
  const call: { -readonly [Key in keyof Call]: Call[Key] } = {
    end: 'refused',
    chargedMicroUsd: 0n,
    leftMicroUsd: null,
  };
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  try {
    const asked = readSpeechRequest(await readJson(request));
    call.asked = { format: asked.format, characters: asked.input.trim().length, voice: asked.voice };
    const buy = async () => {
      const { model, voice } = resolve(await parts.catalog.read(), asked, parts.fallbacks);
      call.spokenWith = { model: model.id, voice };
      checkLimits(asked, model);
      const { input: text, speed } = asked;
      const order = { text, model: model.id, voice, ...(speed !== undefined && speed !== 1 && { speed }) };
      return { model, voice, speech: await parts.purchases.buy(order, gone.signal) };
    };
    const { model, voice, speech } = await buy().catch((error) => {
      if (!(error instanceof ServiceError) || error.code !== 'UNKNOWN_TTS_MODEL') throw error;
      parts.catalog.forget();
      return buy();
    });
    if (!speech) return { ...call, end: 'left' };
    call.chargedMicroUsd = speech.receipt.chargedMicroUsd;
    call.end = 'broken';
    // What was paid for is had all the same where the budget can't be read just now.
    call.leftMicroUsd = await parts.left().catch(() => null);
    const headers = {
      ...priceHeaders(speech.receipt, call.leftMicroUsd),
      'x-speechgate-model': model.id,
      'x-speechgate-voice': voice,
    };
    call.end = await deliver(speech, asked, headers, response).catch(async (error) => {
      if (!(error instanceof UnconvertedError)) throw error;
      throw await notConverted(error, { format: asked.format, headers, receipt: speech.receipt, kept: parts.kept });
    });
  } catch (error) {
    if (error instanceof AudioLostError) call.chargedMicroUsd = error.chargedMicroUsd ?? error.maxMicroUsd;
    call.error = withCharge(toApiError(error, parts.flow), call.chargedMicroUsd, error);
    refuse(response, call.error);
  }
  return call;
}

/** Keeps audio that can't be converted, so that what was paid for is not lost. */
async function notConverted(
  { message, audio }: UnconvertedError,
  {
    format,
    headers,
    receipt: { identifier, chargedMicroUsd },
    kept,
  }: {
    readonly format: AudioFormat;
    readonly headers: Readonly<Record<string, string>>;
    readonly receipt: Receipt;
    readonly kept: SpeechParts['kept'];
  },
): Promise<ApiError> {
  const id = identifier ?? randomUUID();
  const isKept = await (kept?.keepAudio(id, audio) ?? Promise.reject()).then(
    () => true,
    () => false,
  );
  const place = isKept ? `The audio is kept: speechgate resume ${id} --out FILE` : 'The audio could not be kept.';
  return new ApiError(
    { status: 502, type: 'server_error', code: 'audio_not_converted' },
    `The audio can't be converted to ${format}: ${message} You were charged $${formatUsd(chargedMicroUsd)}. ${place}`,
    { ...headers, ...NO_RETRY },
  );
}

/** The error with what was charged. A purchase whose end is unknown, and what the bridge itself says, name it already. */
function withCharge(error: ApiError, chargedMicroUsd: bigint, cause: unknown): ApiError {
  if (cause instanceof OutcomeUnknownError || cause instanceof ApiError) return error;
  const { status, type, code, param, message } = error;
  const isUncertain = cause instanceof AudioLostError && cause.chargedMicroUsd === null;
  const charge = `You were charged ${isUncertain ? 'up to ' : ''}$${formatUsd(chargedMicroUsd)}.`;
  const kind = { status, type, ...(code !== null && { code }), ...(param !== null && { param }) };
  const headers = { ...chargedHeaders(chargedMicroUsd), ...error.headers };
  return chargedMicroUsd === 0n
    ? new ApiError(kind, message, headers)
    : new ApiError(kind, `${message} ${charge}`, { ...headers, ...NO_RETRY });
}

/** Tells an error in OpenAI's shape, unless the answer has begun. */
export function refuse(response: ServerResponse, error: ApiError): void {
  if (response.headersSent || response.destroyed) return;
  response.writeHead(error.status, {
    'content-type': 'application/json',
    'cache-control': 'no-store',
    ...error.headers,
  });
  response.end(JSON.stringify(error.body));
}

/** What OpenAI would take and this model does not. @throws ApiError */
function checkLimits(
  { input, speed }: SpeechRequest,
  {
    id,
    maxInputCharacters,
    speed: range,
  }: { id: string; maxInputCharacters: number; speed: { min: number; max: number } },
): void {
  const { length } = input.trim();
  if (length > maxInputCharacters) {
    throw invalid(
      'input',
      `input has ${length} characters; ${id} takes at most ${maxInputCharacters}.`,
      'string_above_max_length',
    );
  }
  if (speed !== undefined && (speed < range.min || speed > range.max)) {
    throw invalid('speed', `${id} speaks at a speed from ${range.min} to ${range.max}.`);
  }
}
