import type { Receipt, Speech } from './speech.ts';

/** Speech whose audio arrives as a stream. */
export function streamedSpeech(
  audio: ReadableStream<Uint8Array>,
  contentType: Speech['contentType'],
  receipt: Receipt,
): Speech {
  return { audio, bytes: () => collect(audio), contentType, receipt };
}

/** Speech whose whole audio is here. */
export function wholeSpeech(bytes: Uint8Array, contentType: Speech['contentType'], receipt: Receipt): Speech {
  const audio = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(bytes);
      controller.close();
    },
  });
  return streamedSpeech(audio, contentType, receipt);
}

/** The type of an answer's audio. @throws TypeError when it is no audio that the service sends */
export function audioType(response: Response): Speech['contentType'] {
  const type = response.headers.get('content-type')?.split(';', 1)[0]?.trim();
  if (type !== 'audio/mpeg' && type !== 'audio/wav') throw new TypeError(`The answer is ${type}, not audio.`);
  return type;
}

/** The body of an answer; it fails when fewer bytes come than were announced, whatever this platform makes of that. */
export function audioStream(response: Response, body: ReadableStream<Uint8Array> | null): ReadableStream<Uint8Array> {
  if (body === null) throw new TypeError('The answer has no audio.');
  const announced = response.headers.get('content-encoding') === null ? response.headers.get('content-length') : null;
  let left = announced === null ? null : Number(announced);
  return body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        if (left !== null) left -= chunk.length;
        controller.enqueue(chunk);
      },
      flush(controller) {
        if (left !== null && left !== 0) controller.error(new TypeError('The audio broke off.'));
      },
    }),
  );
}

/** The whole of a stream. */
export const collect = async (stream: ReadableStream<Uint8Array>): Promise<Uint8Array> =>
  new Uint8Array(await new Response(stream).arrayBuffer());
