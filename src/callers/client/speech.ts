import { audioEnd, splitEnd } from '../../speech/audio-end.ts';
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
  /** Size in bytes, if it is known before the audio is read. */
  readonly length?: number;
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
  return { ...streamedSpeech(audio, contentType, receipt), length: bytes.length };
}

export function audioType(response: Response): Speech['contentType'] {
  const type = response.headers.get('content-type')?.split(';', 1)[0]?.trim();
  if (type !== 'audio/mpeg' && type !== 'audio/wav')
    throw new TypeError(`content-type of the response is ${type}, which is not audio/mpeg or audio/wav.`);
  return type;
}

/**
 * Fails if the audio is cut: its length differs from `content-length`, which not every fetch checks, or its last frame
 * or sample is incomplete. Some proxies end a cut response as if it were whole.
 * @param confirm decides about audio whose bytes alone do not tell; throws if it is cut
 */
export function audioStream(
  response: Response,
  body: ReadableStream<Uint8Array> | null,
  confirm?: () => Promise<void>,
): ReadableStream<Uint8Array> {
  if (body === null) throw new TypeError('The response has no audio.');
  const contentLength =
    response.headers.get('content-encoding') === null ? response.headers.get('content-length') : null;
  let remaining = contentLength === null ? null : Number(contentLength);
  const follower = audioEnd(audioType(response));
  let held: Uint8Array | undefined;
  return body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        if (remaining !== null) remaining -= chunk.length;
        if (held) controller.enqueue(held);
        const { passed, rest } = splitEnd(follower, chunk);
        held = rest;
        if (passed.length > 0) controller.enqueue(passed);
      },
      async flush(controller) {
        if ((remaining !== null && remaining !== 0) || follower.end === 'cut') {
          return controller.error(new TypeError('The connection closed before the end of the audio.'));
        }
        if (follower.end === 'unknown') await confirm?.();
        if (held) controller.enqueue(held);
      },
    }),
  );
}

export const collect = async (stream: ReadableStream<Uint8Array>): Promise<Uint8Array> =>
  new Uint8Array(await new Response(stream).arrayBuffer());
