import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { formatUsd } from '../../lib/money.ts';
import { serviceId } from '../../lib/service-words.ts';
import type { WholeAudio } from '../budget/purchases.ts';
import { type Recording, slicesOf } from '../budget/recording.ts';
import type { Receipt } from '../client/index.ts';
import { convertTo, FORMATS, isPassThrough } from './audio/formats.ts';
import type { SpeechRequest } from './speech-request.ts';

const STALL_TIMEOUT_MS = 60_000;
const NO_TOKENS = { input_tokens: 0, output_tokens: 0, total_tokens: 0 };

/** The audio was paid and received, but can't be converted to the requested format. */
export class ConversionError extends Error {
  readonly audio: WholeAudio;

  constructor(message: string, audio: WholeAudio) {
    super(message);
    this.audio = audio;
  }
}

/** The purchase is read to its end even if the program disconnects. @throws ConversionError */
export async function deliver(
  recording: Recording,
  { input, format, isEvents }: SpeechRequest,
  headers: Readonly<Record<string, string>>,
  response: ServerResponse,
): Promise<'spoken' | 'left'> {
  const disconnected = new AbortController();
  const { signal } = disconnected;
  if (response.destroyed) return 'left';
  response.once('close', () => disconnected.abort());
  const { contentType } = recording.speech;
  const { isEnded } = recording;
  const converted = convertTo(format, { audio: recording.play(signal), contentType }, input.length, isEnded);
  try {
    // Audio that is whole is converted before the response begins, so that a failure is an error instead of a cut.
    const whole = isEnded ? Buffer.concat(await Readable.from(converted).toArray({ signal })) : undefined;
    const pieces = slices(whole ? [whole] : converted);
    const first = await pieces.next();
    if (response.destroyed) return 'left';
    const sentType = isEvents ? 'text/event-stream' : FORMATS[format].contentType;
    const audioLength = whole?.length ?? (isPassThrough(format, contentType) ? recording.speech.length : undefined);
    const length = audioLength === undefined || isEvents ? {} : { 'content-length': audioLength };
    response.writeHead(200, { 'content-type': sentType, 'cache-control': 'no-store', ...length, ...headers });
    const wrap = isEvents ? toDelta : (bytes: Uint8Array) => bytes;
    for (let piece = first; !piece.done; piece = await pieces.next()) {
      if (!(await sent(response, wrap(piece.value), signal))) return 'left';
    }
    if (signal.aborted) return 'left';
    if (isEvents) response.write(toEvent({ type: 'speech.audio.done', usage: NO_TOKENS }));
    response.end();
    return 'spoken';
  } catch (error) {
    if (signal.aborted) return 'left';
    if (response.headersSent) cut(response);
    if (recording.failure) throw error;
    throw new ConversionError((error as Error).message, { contentType, bytes: await recording.whole() });
  } finally {
    await converted.return(undefined);
  }
}

async function* slices(pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const bytes of pieces) yield* slicesOf(bytes);
}

export const chargedHeaders = (chargedMicroUsd: bigint): Record<string, string> => ({
  'x-speechgate-charged-micro-usd': String(chargedMicroUsd),
  'x-speechgate-charged-usd': formatUsd(chargedMicroUsd),
});

export const priceHeaders = (
  { chargedMicroUsd, balanceMicroUsd, identifier, traceId }: Receipt,
  leftMicroUsd: bigint | null,
): Record<string, string> => ({
  ...chargedHeaders(chargedMicroUsd),
  ...(balanceMicroUsd !== null && { 'x-speechgate-balance-micro-usd': String(balanceMicroUsd) }),
  ...(leftMicroUsd !== null && { 'x-speechgate-budget-left-micro-usd': String(leftMicroUsd) }),
  ...(identifier !== null && { 'x-speechgate-payment': identifier }),
  'x-request-id': serviceId(traceId),
});

/** Resolves when the socket accepts more; false if the program disconnected. */
async function sent(response: ServerResponse, bytes: Uint8Array | string, disconnected: AbortSignal): Promise<boolean> {
  if (response.destroyed) return false;
  if (response.write(bytes)) return true;
  try {
    await once(response, 'drain', { signal: AbortSignal.any([AbortSignal.timeout(STALL_TIMEOUT_MS), disconnected]) });
    return true;
  } catch {
    cut(response);
    return false;
  }
}

const toDelta = (bytes: Uint8Array): string =>
  toEvent({ type: 'speech.audio.delta', audio: Buffer.from(bytes).toString('base64') });

const toEvent = (event: object): string => `data: ${JSON.stringify(event)}\n\n`;

/** By a TCP reset: after an orderly end, some programs take half a response for a whole one. */
export function cut({ socket }: ServerResponse): void {
  if (socket && !socket.destroyed) socket.resetAndDestroy();
}
