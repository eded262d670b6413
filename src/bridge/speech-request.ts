import { invalid } from './api-error.ts';
import { type AudioFormat, FORMATS, isAudioFormat } from './audio/formats.ts';

/** What OpenAI takes, and no more. */
const MIN_SPEED = 0.25;
const MAX_SPEED = 4;

/** A request for speech as OpenAI documents it; what is not here, such as `instructions`, changes nothing. */
export interface SpeechRequest {
  readonly input: string;
  readonly model: string | undefined;
  readonly voice: string | undefined;
  readonly speed: number | undefined;
  readonly format: AudioFormat;
  /** As events with the audio in base64, instead of the audio itself. */
  readonly isEvents: boolean;
}

/** @throws ApiError */
export function readSpeechRequest(body: Readonly<Record<string, unknown>>): SpeechRequest {
  const { input, model, voice, speed } = body;
  const format = body.response_format ?? 'mp3';
  const stream = body.stream_format ?? 'audio';
  if (typeof input !== 'string' || input.trim() === '') throw invalid('input', 'input is the text to speak.');
  if (!isAudioFormat(format)) {
    throw invalid('response_format', `response_format is one of ${Object.keys(FORMATS).join(', ')}.`);
  }
  if (stream !== 'audio' && stream !== 'sse') throw invalid('stream_format', 'stream_format is audio or sse.');
  return {
    input,
    model: readName('model', model),
    voice: readName('voice', isObject(voice) ? voice.id : voice),
    speed: readSpeed(speed),
    format,
    isEvents: stream === 'sse',
  };
}

function readName(param: string, value: unknown): string | undefined {
  if (value === undefined || value === null || value === '') return undefined;
  if (typeof value === 'string' && value.length <= 100) return value;
  throw invalid(param, `${param} is a name of at most 100 characters.`);
}

function readSpeed(speed: unknown): number | undefined {
  if (speed === undefined || speed === null) return undefined;
  if (typeof speed === 'number' && speed >= MIN_SPEED && speed <= MAX_SPEED) return speed;
  throw invalid('speed', `speed is a number from ${MIN_SPEED} to ${MAX_SPEED}.`);
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null;
