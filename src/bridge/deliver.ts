import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { WholeAudio } from '../budget/kept-speech.ts';
import type { Receipt, Speech } from '../client/speech.ts';
import { formatUsd } from '../lib/money.ts';
import { serviceId } from '../lib/service-words.ts';
import { FORMATS, inFormat, isPassedOn } from './audio/formats.ts';
import type { SpeechRequest } from './speech-request.ts';

/** Milliseconds for which a program may take nothing of what it is sent. */
const STALL_MS = 60_000;
/** OpenAI counts tokens; characters are paid here. */
const NO_TOKENS = { input_tokens: 0, output_tokens: 0, total_tokens: 0 };

/** The audio is here and paid, and the format that was asked for can't be made of it. */
export class UnconvertedError extends Error {
  readonly audio: WholeAudio;

  constructor(message: string, audio: WholeAudio) {
    super(message);
    this.audio = audio;
  }
}

/** `left`: the program went away, or took nothing for too long. */
export type Delivery = 'spoken' | 'left';

/**
 * Sends speech as it is made, and reads no further once the program has left: what it cost was told before its first byte.
 * @throws UnconvertedError, and whatever else went wrong; the answer has not begun then, or is cut
 */
export async function deliver(
  speech: Speech,
  { input, format, isEvents }: SpeechRequest,
  headers: Readonly<Record<string, string>>,
  response: ServerResponse,
): Promise<Delivery> {
  const gone = new AbortController();
  const { contentType } = speech;
  const source = new Recording(speech.audio, !isPassedOn(format, contentType));
  const leave = () => {
    gone.abort();
    void source.cancel();
  };
  if (response.destroyed) leave();
  else response.once('close', leave);
  const pieces = inFormat(format, { audio: source.play(), contentType }, input.length);
  try {
    const first = await pieces.next();
    if (response.destroyed) return 'left';
    const sentType = isEvents ? 'text/event-stream' : FORMATS[format].contentType;
    response.writeHead(200, { 'content-type': sentType, 'cache-control': 'no-store', ...headers });
    const wrap = isEvents ? toDelta : (bytes: Uint8Array) => bytes;
    if (!first.done && !(await sent(response, wrap(first.value), gone.signal))) return 'left';
    for await (const bytes of pieces) if (!(await sent(response, wrap(bytes), gone.signal))) return 'left';
    if (gone.signal.aborted) return 'left';
    if (isEvents) response.write(toEvent({ type: 'speech.audio.done', usage: NO_TOKENS }));
    response.end();
    return 'spoken';
  } catch (error) {
    if (gone.signal.aborted) return 'left';
    // What can't be converted is kept: it is read to its end.
    response.off('close', leave);
    if (response.headersSent) response.destroy();
    if (source.hasFailed) throw error;
    throw new UnconvertedError((error as Error).message, { contentType, bytes: await source.whole() });
  } finally {
    await pieces.return(undefined);
    await source.cancel();
  }
}

/** Audio as it is read, which may be kept for the case that it can't be converted. */
class Recording {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #isKept: boolean;
  readonly #parts: Uint8Array[] = [];
  #hasFailed = false;

  constructor(audio: ReadableStream<Uint8Array>, isKept: boolean) {
    this.#reader = audio.getReader();
    this.#isKept = isKept;
  }

  /** Whether the audio could not be read to its end. */
  get hasFailed(): boolean {
    return this.#hasFailed;
  }

  async *play(): AsyncGenerator<Uint8Array> {
    try {
      for (;;) {
        const { done, value } = await this.#reader.read();
        if (done) return;
        if (this.#isKept) this.#parts.push(value);
        yield value;
      }
    } catch (error) {
      this.#hasFailed = true;
      throw error;
    }
  }

  /** Ends the audio here: what waits for more of it gets no more. */
  async cancel(): Promise<void> {
    await this.#reader.cancel().catch(() => {});
  }

  /** All of it, also what was not played yet. */
  async whole(): Promise<Uint8Array> {
    for await (const _ of this.play());
    return Buffer.concat(this.#parts);
  }
}

/** What a request has cost. */
export const chargedHeaders = (chargedMicroUsd: bigint): Record<string, string> => ({
  'x-speechgate-charged-micro-usd': String(chargedMicroUsd),
  'x-speechgate-charged-usd': formatUsd(chargedMicroUsd),
});

/** What a program can read of its price, before the first byte of the audio. */
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

/** Resolves when there is room for more; false when the program is gone. */
async function sent(response: ServerResponse, bytes: Uint8Array | string, gone: AbortSignal): Promise<boolean> {
  if (response.destroyed) return false;
  if (bytes.length === 0 || response.write(bytes)) return true;
  try {
    await once(response, 'drain', { signal: AbortSignal.any([AbortSignal.timeout(STALL_MS), gone]) });
    return true;
  } catch {
    response.destroy();
    return false;
  }
}

const toDelta = (bytes: Uint8Array): string =>
  toEvent({ type: 'speech.audio.delta', audio: Buffer.from(bytes).toString('base64') });

const toEvent = (event: object): string => `data: ${JSON.stringify(event)}\n\n`;
