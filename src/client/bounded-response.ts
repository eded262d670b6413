import { TooLargeError } from './errors.ts';

/** What an answer that is not audio may have. */
export const MOST_JSON_BYTES = 1_048_576;
/** The longest that a body may take, in milliseconds. */
const LONGEST_MS = 3_600_000;

/**
 * The most that the audio of a text may have, in bytes: uncompressed stereo at 48 kHz, spoken at half the speed, with room
 * for what comes before and after.
 * @param characters of the text, or more
 */
export const mostAudioBytes = (characters: number): number => Math.min(2_097_152 + characters * 24_576, 268_435_456);

/**
 * The same response, whose body fails once it has more bytes than it may (counted after decompression) or takes longer than
 * an hour, and ends with the signal: fetch itself forgets the signal when a garbage collection takes its Request.
 */
export function boundedResponse(response: Response, mostBytes: number, signal: AbortSignal | undefined): Response {
  const { body, status, statusText, headers } = response;
  if (body === null) return response;
  const bounded = body.pipeThrough(bound(mostBytes), { ...(signal && { signal }) });
  return new Response(bounded, { status, statusText, headers });
}

function bound(mostBytes: number): TransformStream<Uint8Array, Uint8Array> {
  const end = performance.now() + LONGEST_MS;
  let left = mostBytes;
  return new TransformStream({
    transform(chunk, controller) {
      left -= chunk.length;
      if (left < 0)
        throw new TooLargeError(`The answer has more than ${mostBytes} bytes, and was not read any further.`);
      if (performance.now() > end)
        throw new TooLargeError('The answer took longer than an hour, and was not read any further.');
      controller.enqueue(chunk);
    },
  });
}
