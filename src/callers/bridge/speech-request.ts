import type { IncomingMessage } from 'node:http';
import { decodeBody } from '../../http/plugins/bodies.ts';
import { readContentType, refuseContentType } from '../../http/plugins/request-head.ts';
import { ApiError, invalid } from './api-error.ts';
import { type AudioFormat, FORMATS, isAudioFormat } from './audio/formats.ts';

/** Enough for the longest input with every character escaped, and equally long instructions. */
const MAX_BYTES = 256 * 1024;
const JSON_TYPE = 'application/json';
const NOTHING_BOUGHT = 'Nothing was bought.';
const MIN_SPEED = 0.25;
const MAX_SPEED = 4;
/** Names that fit into a header. */
const PLAIN_NAME = /^[\w-]{1,40}$/;
const MAX_IGNORED = 10;

type Body = Readonly<Record<string, unknown>>;

/** OpenAI's speech request. */
export interface SpeechRequest {
  readonly input: string;
  readonly model: string | undefined;
  readonly voice: string | undefined;
  readonly speed: number | undefined;
  readonly format: AudioFormat;
  readonly isEvents: boolean;
  /** Names of members that have no effect, such as `instructions`. */
  readonly ignored: readonly string[];
}

export async function readSpeechRequest(request: IncomingMessage): Promise<SpeechRequest> {
  const { input, model, voice, speed, response_format, stream_format, ...others } = await readJson(request);
  const format = response_format ?? 'mp3';
  const stream = stream_format ?? 'audio';
  if (typeof input !== 'string' || input.trim() === '')
    throw invalid('input', `input must be a string with text to speak. ${NOTHING_BOUGHT}`);
  if (!isAudioFormat(format)) {
    throw invalid(
      'response_format',
      `response_format must be one of ${Object.keys(FORMATS).join(', ')}. ${NOTHING_BOUGHT}`,
    );
  }
  if (stream !== 'audio' && stream !== 'sse')
    throw invalid('stream_format', `stream_format must be audio or sse. ${NOTHING_BOUGHT}`);
  return {
    input,
    model: readName('model', model),
    voice: readName('voice', typeof voice === 'object' && voice !== null ? (voice as Body).id : voice),
    speed: readSpeed(speed),
    format,
    isEvents: stream === 'sse',
    ignored: Object.keys(others)
      .filter((name) => PLAIN_NAME.test(name) && !isBlank(others[name]))
      .slice(0, MAX_IGNORED),
  };
}

const isBlank = (value: unknown): boolean => value === null || (typeof value === 'string' && value.trim() === '');

function readName(param: string, value: unknown): string | undefined {
  if (value === undefined || value === null || value === '') return undefined;
  if (typeof value === 'string' && value.length <= 100) return value;
  throw invalid(param, `${param} must be a string of at most 100 characters. ${NOTHING_BOUGHT}`);
}

function readSpeed(speed: unknown): number | undefined {
  if (speed === undefined || speed === null) return undefined;
  if (typeof speed === 'number' && speed >= MIN_SPEED && speed <= MAX_SPEED) return speed;
  throw invalid('speed', `speed must be a number from ${MIN_SPEED} to ${MAX_SPEED}. ${NOTHING_BOUGHT}`);
}

async function readJson(request: IncomingMessage): Promise<Body> {
  const { headers } = request;
  if (readContentType(headers['content-type']).type !== JSON_TYPE) {
    const message = `content-type must be ${JSON_TYPE}. Send the body as JSON with this header. ${NOTHING_BOUGHT}`;
    throw invalid(null, message, 'invalid_content_type');
  }
  const refusal = refuseContentType(headers, [JSON_TYPE]);
  if (refusal) {
    throw invalid(null, refusal.body.error.message, 'invalid_content_type', refusal.status);
  }
  const parts: Buffer[] = [];
  let length = 0;
  for await (const bytes of request) {
    length += bytes.length;
    if (length > MAX_BYTES) {
      throw new ApiError(
        { status: 413, type: 'invalid_request_error', code: 'request_too_large' },
        `The body is larger than ${MAX_BYTES} bytes. Send a shorter input. ${NOTHING_BOUGHT}`,
        { connection: 'close' },
      );
    }
    parts.push(bytes);
  }
  const decoded = decodeBody(JSON_TYPE, Buffer.concat(parts));
  if (decoded.outcome === 'unreadable') {
    throw invalid(null, decoded.failure.body.error.message, 'invalid_json');
  }
  const { value } = decoded;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw invalid(null, `The body must be a JSON object with the member input. ${NOTHING_BOUGHT}`, 'invalid_json');
  }
  return value as Body;
}
