/** A network between a caller and the service. */
export interface FaultyLine {
  /** The share of the next audio that gets through, from 0 to 1. */
  cutAt: number | undefined;
  isCutOnce: boolean;
  /** Seconds that a 429 in place of each purchase asks for. */
  retryAfter: number | undefined;
}

/** The fetch of a caller whose requests go over that line. */
export function overLine(line: FaultyLine): typeof fetch {
  return async (input, init) => {
    const request = new Request(input, init);
    if (line.retryAfter !== undefined && request.method === 'POST') {
      const error = { code: 'RATE_LIMITED', message: 'Too many.', details: null };
      const headers = { 'content-type': 'application/json', 'retry-after': String(line.retryAfter) };
      return new Response(JSON.stringify({ error }), { status: 429, headers });
    }
    const response = await fetch(request);
    const { cutAt } = line;
    if (cutAt === undefined || !response.headers.get('content-type')?.startsWith('audio/')) return response;
    if (line.isCutOnce) line.cutAt = undefined;
    const audio = new Uint8Array(await response.arrayBuffer());
    const parts = [audio.subarray(0, Math.floor(audio.length * cutAt))].filter(({ length }) => length > 0);
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        const part = parts.shift();
        if (part) controller.enqueue(part);
        else controller.error(new TypeError('The line is cut.'));
      },
    });
    return new Response(body, response);
  };
}
