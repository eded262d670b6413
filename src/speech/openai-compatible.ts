import { type Dispatcher, errors, Pool } from 'undici';
import { SPEED } from '../config/speech-limits.ts';
import { type AudioReader, audioReader, detectAudioType, MAGIC_BYTES } from './audio-format.ts';
import {
  audioError,
  brokenOff,
  deadlineExceeded,
  firstByteTimeout,
  MAX_AUDIO_BYTES,
  notAudio,
  type Speech,
  SpeechError,
  type SpokenWord,
  statusError,
  tooLarge,
  type Utterance,
} from './provider.ts';

interface MeasuredSpeech extends Speech {
  /** Of all of `audio`, when that has ended. */
  measure(): Pick<AudioReader, 'seconds' | 'isSilent'>;
}

export interface SpeechServer {
  /**
   * Resolves with the first audio, rejects with SpeechError (R9). Redirects are not followed.
   * @param signal deadline of the whole synthesis
   * @param firstByteMs longest wait for the first audio, if less than the server's own
   */
  synthesize(utterance: Utterance, signal: AbortSignal, firstByteMs?: number): Promise<MeasuredSpeech>;
  probe(signal: AbortSignal): Promise<boolean>;
  close(): Promise<void>;
}

const CONNECT_TIMEOUT_MS = 5_000;
/** Further requests queue, which counts towards their first-byte timeout. */
const MAX_CONNECTIONS = 1024;
const MAX_PROBE_BYTES = 64 * 1024;
/** A smaller error body is read, so that its connection can be reused. For a larger one the connection is cut. */
const MAX_ERROR_BYTES = 4096;
const ERROR_TIMEOUT_MS = 1_000;
/** undici's errors for a response that is not valid HTTP: the provider was reached. */
const NOT_HTTP = [errors.HTTPParserError, errors.HeadersOverflowError, errors.ResponseContentLengthMismatchError];
/** undici's messages for an unsolicited 100 or 101, which have no code of their own. */
const BAD_INTERIM_RESPONSE = /^bad (response|upgrade)$/;
/** These types are never audio. Any other type, or none, may be wrong: the bytes decide. */
const TEXT_CONTENT_TYPE = /^(text|multipart)\/|\b(json|xml|html)\b/;

/**
 * A server with OpenAI's `POST /audio/speech`. For captions it is Kokoro-FastAPI, which tells at another path when each
 * word is spoken. @throws TypeError if baseUrl is no URL
 */
export function openAiCompatible({
  baseUrl,
  apiKey,
  firstByteTimeoutMs,
}: {
  /** Absolute http or https URL that ends in `/v1`. */
  readonly baseUrl: string;
  readonly apiKey?: string | undefined;
  readonly firstByteTimeoutMs: number;
}): SpeechServer {
  const base = new URL(baseUrl);
  const pathOf = (resource: string) => `${base.pathname.replace(/\/+$/, '')}/${resource}${base.search}`;
  const speechPath = pathOf('audio/speech');
  const captionedPath = base.pathname.replace(/\/v1\/*$/, '/dev/captioned_speech') + base.search;
  const identity = { 'user-agent': 'speechgate', ...(apiKey && { authorization: `Bearer ${apiKey}` }) };
  const headers = { 'content-type': 'application/json', ...identity };
  const pool = new Pool(base.origin, {
    connections: MAX_CONNECTIONS,
    connectTimeout: CONNECT_TIMEOUT_MS,
    // A synthesis has its own exact timeouts, which include the wait for a connection.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  let closing: Promise<void> | undefined;

  return {
    async synthesize({ text, model, voice, speed, isCaptioned = false }, deadline, firstByteMs = firstByteTimeoutMs) {
      const pace = speed === SPEED.default ? {} : { speed };
      const captioned = isCaptioned ? { stream: false, return_timestamps: true } : {};
      const body = JSON.stringify({ model, input: text, voice, ...pace, response_format: 'mp3', ...captioned });
      const path = isCaptioned ? captionedPath : speechPath;
      const send = (signal: AbortSignal) => pool.request({ method: 'POST', path, headers, body, signal });
      const steps = receive(send, isCaptioned, deadline, Math.min(firstByteMs, firstByteTimeoutMs));
      const { value: head } = await steps.next();
      // What follows the head is audio.
      return { ...(head as SpeechHead), audio: steps as AsyncGenerator<Uint8Array, void> };
    },
    async probe(signal) {
      const answer = await pool.request({ method: 'GET', path: pathOf('models'), headers: identity, signal });
      await answer.body.dump({ limit: MAX_PROBE_BYTES, signal });
      return answer.statusCode < 500 && answer.statusCode !== 429;
    },
    close() {
      closing ??= pool.close();
      return closing;
    },
  };
}

const EMPTY: Uint8Array = new Uint8Array();

type SpeechHead = Pick<MeasuredSpeech, 'mimeType' | 'description' | 'measure' | 'words'>;

/** Yields the head once, and then the audio. */
type SpeechSteps = AsyncGenerator<SpeechHead | Uint8Array, void>;

async function* receive(
  send: (signal: AbortSignal) => Promise<Dispatcher.ResponseData>,
  isCaptioned: boolean,
  deadline: AbortSignal,
  firstByteMs: number,
): SpeechSteps {
  if (deadline.aborted) throw deadlineExceeded();
  const abort = new AbortController();
  const onDeadline = () => abort.abort(deadlineExceeded());
  deadline.addEventListener('abort', onDeadline);
  const timer = setTimeout(() => abort.abort(firstByteTimeout()), firstByteMs);
  let isSent = false;
  try {
    const response = await send(abort.signal);
    isSent = true;
    const refusal = refusalOf(response, isCaptioned);
    if (refusal) {
      const signal = AbortSignal.timeout(ERROR_TIMEOUT_MS);
      response.body.dump({ limit: MAX_ERROR_BYTES, signal }).catch(() => {});
      throw refusal;
    }
    for await (const step of isCaptioned ? captionedAudioOf(response) : audioOf(response)) {
      clearTimeout(timer);
      yield step;
    }
  } catch (error) {
    if (abort.signal.aborted) throw abort.signal.reason;
    if (error instanceof SpeechError) throw error;
    throw isSent ? brokenOff(error) : connectionError(error as Error);
  } finally {
    clearTimeout(timer);
    deadline.removeEventListener('abort', onDeadline);
  }
}

function connectionError(error: Error): SpeechError {
  const isAnswer = NOT_HTTP.some((type) => error instanceof type) || BAD_INTERIM_RESPONSE.test(error.message);
  if (isAnswer) {
    const message = 'The speech provider answered with invalid HTTP, or with too large headers.';
    return new SpeechError('TTS_UPSTREAM_ERROR', message, false).because('not_http', error);
  }
  const fault = isRefused(error) ? 'unreachable' : 'upstream';
  const message = 'The speech provider could not be reached, or closed the connection without an answer.';
  return new SpeechError('TTS_UNAVAILABLE', message, true, undefined, fault).because('unreachable', error);
}

/** Nothing listens there. A name with several addresses gives one error for each. */
function isRefused(error: Error): boolean {
  const each: NodeJS.ErrnoException[] = error instanceof AggregateError ? error.errors : [error];
  return each.length > 0 && each.every(({ code }) => code === 'ECONNREFUSED');
}

function refusalOf({ statusCode, headers }: Dispatcher.ResponseData, isCaptioned: boolean): SpeechError | undefined {
  if (statusCode > 299) return statusError(statusCode, headers['retry-after'] as string | undefined);
  if (isCaptioned) return undefined;
  if (TEXT_CONTENT_TYPE.test(String(headers['content-type']).toLowerCase())) return notAudio();
  return Number(headers['content-length']) > MAX_AUDIO_BYTES ? tooLarge() : undefined;
}

/** JSON with the audio in base64, and the words if it knows their times. */
async function* captionedAudioOf({ body }: Dispatcher.ResponseData): SpeechSteps {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body as AsyncIterable<Uint8Array>) {
    size += chunk.length;
    if (size > 2 * MAX_AUDIO_BYTES) throw tooLarge();
    chunks.push(chunk);
  }
  const { audio, words } = parseCaptioned(Buffer.concat(chunks).toString());
  for await (const step of audioOf({ headers: { 'content-length': String(audio.length) }, body: [audio] })) {
    yield 'mimeType' in step ? { ...step, words } : step;
  }
}

function parseCaptioned(json: string): { readonly audio: Buffer; readonly words: readonly SpokenWord[] } {
  try {
    const { audio, timestamps } = JSON.parse(json);
    const words = (timestamps ?? []).map(({ word, start_time: start, end_time: end }: Record<string, unknown>) => {
      return { word: String(word), start: Number(start), end: Number(end) };
    });
    return { audio: Buffer.from(audio, 'base64'), words };
  } catch (error) {
    throw notAudio().because('no_audio', error);
  }
}

interface Answer {
  readonly headers: Dispatcher.ResponseData['headers'];
  readonly body: Dispatcher.ResponseData['body'] | readonly Uint8Array[];
}

async function* audioOf({ headers, body }: Answer): SpeechSteps {
  const length = headers['content-length'];
  const playable: Uint8Array[] = [];
  const options = {
    pass: (bytes: Uint8Array) => void playable.push(bytes),
    bodyBytes: length === undefined ? undefined : Number(length),
  };
  let start = EMPTY;
  let reader: AudioReader | undefined;
  /** Until it is announced. */
  let head: SpeechHead | undefined;
  let size = 0;
  for await (const chunk of body as AsyncIterable<Uint8Array>) {
    size += chunk.length;
    if (size > MAX_AUDIO_BYTES) throw tooLarge();
    const bytes = start.length === 0 ? chunk : Buffer.concat([start, chunk]);
    if (!reader) {
      const type = detectAudioType(bytes.subarray(0, MAGIC_BYTES));
      if (type === 'not-audio') throw notAudio();
      start = type ? EMPTY : bytes;
      if (!type) continue;
      const opened = audioReader(type, options);
      reader = opened;
      head = { mimeType: type, description: () => opened.description, measure: () => opened };
    }
    const fault = reader.push(bytes);
    if (fault) throw audioError(fault);
    if (!reader.hasAudio) continue;
    if (head) yield head;
    head = undefined;
    for (const part of playable.splice(0)) yield part;
  }
  if (!reader) throw notAudio();
  const fault = reader.end();
  // The body ends when the connection closes, so a break looks like the end.
  const endsByClose = length === undefined && headers['transfer-encoding'] === undefined;
  if (fault) throw fault === 'truncated' && endsByClose ? brokenOff() : audioError(fault);
  if (head) yield head;
  yield* playable;
}
