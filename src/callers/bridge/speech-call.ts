import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { TtsModel } from '../../contract/types.ts';
import { type Cleaning, cleanText } from '../../lib/clean-text.ts';
import { formatUsd } from '../../lib/money.ts';
import type { Purchases, SavedSpeech } from '../budget/purchases.ts';
import { AudioLostError, OutcomeUnknownError, type Receipt, ServiceError } from '../client/index.ts';
import { ApiError, invalid, lasting, NO_RETRY, toApiError } from './api-error.ts';
import { type AudioFormat, isAvailable } from './audio/formats.ts';
import { type Catalog, type Fallbacks, resolve } from './catalog.ts';
import { ConversionError, chargedHeaders, deliver, priceHeaders } from './deliver.ts';
import { readSpeechRequest, type SpeechRequest } from './speech-request.ts';

export interface Call {
  readonly asked?: {
    readonly format: AudioFormat;
    readonly characters: number;
    readonly voice: string | undefined;
    readonly ignored: readonly string[];
  };
  readonly spokenWith?: { readonly model: string; readonly voice: string };
  /** `refused`: nothing was bought. `broken`: bought, but the program did not get the whole audio. */
  readonly end: 'spoken' | 'left' | 'refused' | 'broken';
  /** The maximum price if the response was lost; 0 if an earlier request has bought the speech. */
  readonly chargedMicroUsd: bigint;
  readonly isRepeated: boolean;
  readonly leftMicroUsd: bigint | null;
  readonly error?: ApiError;
}

export interface SpeechCallContext {
  readonly catalog: Catalog;
  readonly purchases: Purchases;
  readonly fallbacks: Fallbacks;
  readonly cleaning: Cleaning | undefined;
  /** Card credit only: plays the audio while it is spoken. It can't be fetched again. */
  readonly isStreamed: boolean;
  readonly saved: Pick<SavedSpeech, 'saveAudio'> | undefined;
  readonly readLeftMicroUsd: () => Promise<bigint | null>;
}

/** Responds to the request, and returns a record of the call. Never throws. */
export async function handleSpeech(
  context: SpeechCallContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<Call> {
  const call: { -readonly [Key in keyof Call]: Call[Key] } = {
    end: 'refused',
    chargedMicroUsd: 0n,
    isRepeated: false,
    leftMicroUsd: null,
  };
  /** Of the purchase, which an earlier request may have made. */
  let chargedMicroUsd = 0n;
  try {
    const speechRequest = cleanInput(await readSpeechRequest(request), context.cleaning);
    const { input, format, speed, ignored } = speechRequest;
    call.asked = { format, characters: input.trim().length, voice: speechRequest.voice, ignored };
    if (!(await isAvailable(format))) {
      throw invalid(
        'response_format',
        `response_format ${format} needs ffmpeg, which is not installed. Install it, or use mp3, wav or pcm. Nothing was bought.`,
        'format_not_available',
      );
    }
    const buy = async () => {
      const { model, voice } = resolve(await context.catalog.read(), speechRequest, context.fallbacks);
      call.spokenWith = { model: model.id, voice };
      checkLimits(speechRequest, model);
      if (response.destroyed) return undefined;
      const text = input.trim();
      const order = { text, model: model.id, voice, ...(speed !== undefined && speed !== 1 && { speed }) };
      const { recording, isRepeated } = context.purchases.buy(order);
      call.isRepeated = isRepeated;
      return { model, voice, recording: await recording };
    };
    const bought = await buy().catch((error) => {
      if (!(error instanceof ServiceError) || error.code !== 'UNKNOWN_TTS_MODEL') throw error;
      context.catalog.forget();
      return buy();
    });
    if (!bought) return { ...call, end: 'left' };
    const { model, voice, recording } = bought;
    const { receipt } = recording.speech;
    chargedMicroUsd = receipt.chargedMicroUsd;
    call.end = 'broken';
    if (!context.isStreamed) await recording.ended;
    // Delivers the paid audio even if the budget can't be read.
    call.leftMicroUsd = await context.readLeftMicroUsd().catch(() => null);
    const headers = {
      ...priceHeaders(receipt, call.leftMicroUsd),
      'x-speechgate-model': model.id,
      'x-speechgate-voice': voice,
      ...cleanedHeader(context.cleaning),
      ...(call.isRepeated && { 'x-speechgate-replay': 'true' }),
      ...(ignored.length > 0 && { 'x-speechgate-ignored': ignored.join(', ') }),
    };
    call.end = await deliver(recording, speechRequest, headers, response).catch(async (error) => {
      if (!(error instanceof ConversionError)) throw error;
      const charge = `You were charged $${formatUsd(receipt.chargedMicroUsd)}.`;
      throw lasting(
        'audio_not_converted',
        `The audio cannot be converted to ${format}: ${error.message} ${charge} ${await saveAudio(error, receipt, context)}`,
        headers,
      );
    });
  } catch (error) {
    if (error instanceof AudioLostError) {
      chargedMicroUsd = error.chargedMicroUsd ?? error.maxMicroUsd;
      call.end = 'broken';
    }
    call.error = withCharge(toApiError(error, context.isStreamed), chargedMicroUsd, error);
    refuse(response, call.error);
  }
  if (!call.isRepeated) call.chargedMicroUsd = chargedMicroUsd;
  return call;
}

function cleanInput(request: SpeechRequest, cleaning: Cleaning | undefined): SpeechRequest {
  if (!cleaning) return request;
  const input = cleanText(request.input, cleaning);
  if (input.trim() !== '') return { ...request, input };
  throw invalid(
    'input',
    'input has only markup, code or emoji, which this bridge removes. Send words to speak. Nothing was bought.',
  );
}

/** What was taken out of the input, if anything can be. */
function cleanedHeader({ format, emoji }: Cleaning = { format: 'off', emoji: true }): Record<string, string> {
  const cleaned = [...(format === 'off' ? [] : [format]), ...(emoji ? [] : ['emoji'])];
  return cleaned.length > 0 ? { 'x-speechgate-cleaned': cleaned.join(', ') } : {};
}

async function saveAudio(
  { audio }: ConversionError,
  { identifier }: Receipt,
  { saved }: SpeechCallContext,
): Promise<string> {
  const id = identifier ?? randomUUID();
  const isSaved = await (saved?.saveAudio(id, audio) ?? Promise.reject()).then(
    () => true,
    () => false,
  );
  return isSaved
    ? `Get the original audio with: speechgate resume ${id} --out FILE`
    : 'The original audio could not be saved. Request the same text as mp3 or wav soon: for up to ten minutes, that is not charged again.';
}

function withCharge(error: ApiError, chargedMicroUsd: bigint, cause: unknown): ApiError {
  if (cause instanceof OutcomeUnknownError || cause instanceof ApiError) return error;
  const headers = { ...chargedHeaders(chargedMicroUsd), ...error.headers };
  if (chargedMicroUsd === 0n) return new ApiError(error, error.message, headers);
  const isUncertain = cause instanceof AudioLostError && cause.chargedMicroUsd === null;
  const charge = `You ${isUncertain ? 'may have been charged up to' : 'were charged'} $${formatUsd(chargedMicroUsd)}.`;
  return new ApiError(error, `${error.message} ${charge}`, { ...headers, ...NO_RETRY });
}

export function refuse(response: ServerResponse, error: ApiError): void {
  if (response.headersSent || response.destroyed) return;
  response.writeHead(error.status, {
    'content-type': 'application/json',
    'cache-control': 'no-store',
    ...error.headers,
  });
  response.end(JSON.stringify(error.body));
}

function checkLimits({ input, speed }: SpeechRequest, { id, maxInputCharacters, speed: range }: TtsModel): void {
  const { length } = input.trim();
  if (length > maxInputCharacters) {
    const message = `input has ${length} characters, but ${id} accepts at most ${maxInputCharacters}. Shorten it. Nothing was bought.`;
    throw invalid('input', message, 'string_above_max_length');
  }
  if (speed !== undefined && (speed < range.min || speed > range.max)) {
    throw invalid('speed', `speed must be from ${range.min} to ${range.max} for the model ${id}. Nothing was bought.`);
  }
}
