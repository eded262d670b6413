import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { formatUsd } from '../../lib/money.ts';
import { serviceId } from '../../lib/service-words.ts';
import type { WholeAudio } from '../budget/purchases.ts';
import type { Receipt, Speech } from '../client/index.ts';
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

/** Stops reading when the program disconnects. @throws ConversionError */
export async function deliver(
  speech: Speech,
  { input, format, isEvents }: SpeechRequest,
  headers: Readonly<Record<string, string>>,
  response: ServerResponse,
): Promise<'spoken' | 'left'> {
  const disconnected = new AbortController();
  const { contentType } = speech;
  const source = new Recording(speech.audio, !isPassThrough(format, contentType));
  const disconnect = () => {
    disconnected.abort();
    void source.cancel();
  };
  if (response.destroyed) disconnect();
  else response.once('close', disconnect);
  const pieces = convertTo(format, { audio: source.play(), contentType }, input.length);
  try {
    const first = await pieces.next();
    if (response.destroyed) return 'left';
    const sentType = isEvents ? 'text/event-stream' : FORMATS[format].contentType;
    const length = isEvents
      ? undefined
      : isPassThrough(format, contentType)
        ? speech.length
        : wholeLength(format, first);
    response.writeHead(200, {
      'content-type': sentType,
      'cache-control': 'no-store',
      ...(length !== undefined && { 'content-length': length }),
      ...headers,
    });
    const wrap = isEvents ? toDelta : (bytes: Uint8Array) => bytes;
    if (!first.done && !(await sent(response, wrap(first.value), disconnected.signal))) return 'left';
    for await (const bytes of pieces) if (!(await sent(response, wrap(bytes), disconnected.signal))) return 'left';
    if (disconnected.signal.aborted) return 'left';
    if (isEvents) response.write(toEvent({ type: 'speech.audio.done', usage: NO_TOKENS }));
    response.end();
    return 'spoken';
  } catch (error) {
    if (disconnected.signal.aborted) return 'left';
    // From here on a disconnect must not stop the reading, so that the whole audio can be saved.
    response.off('close', disconnect);
    if (response.headersSent) cut(response);
    if (source.hasFailed) throw error;
    throw new ConversionError((error as Error).message, { contentType, bytes: await source.whole() });
  } finally {
    await pieces.return(undefined);
    await source.cancel();
  }
}

/** The length of a format that is made as one piece. */
const wholeLength = (format: SpeechRequest['format'], { value }: IteratorResult<Uint8Array>): number | undefined =>
  'isWhole' in FORMATS[format] ? (value?.length ?? 0) : undefined;

class Recording {
  hasFailed = false;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #isRecorded: boolean;
  readonly #parts: Uint8Array[] = [];

  constructor(audio: ReadableStream<Uint8Array>, isRecorded: boolean) {
    this.#reader = audio.getReader();
    this.#isRecorded = isRecorded;
  }

  async *play(): AsyncGenerator<Uint8Array> {
    try {
      for (;;) {
        const { done, value } = await this.#reader.read();
        if (done) return;
        if (this.#isRecorded) this.#parts.push(value);
        yield value;
      }
    } catch (error) {
      this.hasFailed = true;
      throw error;
    }
  }

  async cancel(): Promise<void> {
    await this.#reader.cancel().catch(() => {});
  }

  async whole(): Promise<Uint8Array> {
    for await (const _ of this.play());
    return Buffer.concat(this.#parts);
  }
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
  if (bytes.length === 0 || response.write(bytes)) return true;
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
