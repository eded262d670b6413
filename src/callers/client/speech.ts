import { wholeAudio } from '../../speech/whole-audio.ts';
import type { Flow } from './pending-purchase.ts';

export interface SpeechOrder {
  readonly text: string;
  readonly model?: string;
  readonly voice?: string;
  /** 0.5 to 2. */
  readonly speed?: number;
}

export interface Speech {
  /** Can be read once: here, or by `bytes`. */
  readonly audio: ReadableStream<Uint8Array>;
  /** As a file: with its length in the header, which a stream may lack. */
  bytes(): Promise<Uint8Array>;
  readonly contentType: 'audio/mpeg' | 'audio/wav';
  readonly receipt: Receipt;
}

export interface Receipt {
  readonly flow: Flow;
  readonly chargedMicroUsd: bigint;
  /** The remaining account or prepaid balance; null for a direct payment, or if the service did not report it. */
  readonly balanceMicroUsd: bigint | null;
  /** The payment identifier, the nonce, or the idempotency-key; null for a card request without one. */
  readonly identifier: string | null;
  readonly transaction: string | null;
  /** True when an earlier request, whose response was lost, had paid. */
  readonly isReplay: boolean;
  readonly traceId: string;
}

export function streamedSpeech(
  audio: ReadableStream<Uint8Array>,
  contentType: Speech['contentType'],
  receipt: Receipt,
): Speech {
  return { audio, bytes: async () => wholeAudio(contentType, await collect(audio)), contentType, receipt };
}

export function wholeSpeech(bytes: Uint8Array, contentType: Speech['contentType'], receipt: Receipt): Speech {
  const audio = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(bytes);
      controller.close();
    },
  });
  return streamedSpeech(audio, contentType, receipt);
}

export function audioType(response: Response): Speech['contentType'] {
  const type = response.headers.get('content-type')?.split(';', 1)[0]?.trim();
  if (type !== 'audio/mpeg' && type !== 'audio/wav')
    throw new TypeError(`The response is ${type}, not audio/mpeg or audio/wav.`);
  return type;
}

/** Fails if the length differs from `content-length`, because not every fetch checks it. */
export function audioStream(response: Response, body: ReadableStream<Uint8Array> | null): ReadableStream<Uint8Array> {
  if (body === null) throw new TypeError('The response has no audio.');
  const contentLength =
    response.headers.get('content-encoding') === null ? response.headers.get('content-length') : null;
  let remaining = contentLength === null ? null : Number(contentLength);
  return body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        if (remaining !== null) remaining -= chunk.length;
        controller.enqueue(chunk);
      },
      flush(controller) {
        if (remaining !== null && remaining !== 0) controller.error(new TypeError('The audio was cut off.'));
      },
    }),
  );
}

export const collect = async (stream: ReadableStream<Uint8Array>): Promise<Uint8Array> =>
  new Uint8Array(await new Response(stream).arrayBuffer());
