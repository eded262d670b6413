import type { IncomingHttpHeaders, ServerResponse } from 'node:http';

/** A request as the stub got it. */
export interface RecordedRequest {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  /** The parsed JSON body; undefined when it is no JSON. */
  body: Record<string, unknown> | undefined;
  /** Number of the connection that carried it, from 1 on: equal numbers mean the same socket. */
  connection: number;
  /** Resolves when the answer is over: sent completely, or cut by either side. */
  closed: Promise<'complete' | 'aborted'>;
}

/** What the stub does with a speech request. */
export type Mode = (request: RecordedRequest, response: ServerResponse) => void;

/** How the end of a body is told: by Content-Length, by the last chunk, or by closing the connection. */
export type Framing = 'length' | 'chunked' | 'close';

export interface BodyOptions {
  status?: number;
  contentType?: string;
  headers?: Record<string, string>;
  framing?: Framing;
}

/** Answers with these bytes. Default: 200, `audio/mpeg`, with a Content-Length. */
export function body(bytes: Uint8Array | string, options: BodyOptions = {}): Mode {
  return (_request, response) => {
    start(response, { ...options, length: Buffer.byteLength(bytes) });
    response.end(bytes);
  };
}

export function start(response: ServerResponse, options: BodyOptions & { length: number }): void {
  const framing = options.framing ?? 'length';
  if (framing === 'length') response.setHeader('content-length', options.length);
  if (framing === 'close') {
    response.shouldKeepAlive = false;
    response.useChunkedEncodingByDefault = false;
    response.removeHeader('transfer-encoding');
  }
  response.writeHead(options.status ?? 200, {
    'content-type': options.contentType ?? 'audio/mpeg',
    ...options.headers,
  });
}

/**
 * An answer that a test pours out piece by piece: `stub.mode = drip.mode`, `await drip.opened`, `await
 * drip.write(bytes)`, `drip.end()`. Serves one request.
 */
export class ControlledStream {
  readonly opened: Promise<void>;
  #response: ServerResponse | undefined;
  #open!: () => void;
  readonly #options: BodyOptions;

  constructor(options: BodyOptions = {}) {
    this.#options = { framing: 'chunked', ...options };
    this.opened = new Promise((resolve) => {
      this.#open = resolve;
    });
  }

  readonly mode: Mode = (_request, response) => {
    this.#response = response;
    start(response, { ...this.#options, length: 0 });
    response.flushHeaders();
    this.#open();
  };

  /** Resolves when the bytes have been handed to the operating system. */
  async write(bytes: Uint8Array): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#opened().write(bytes, (error) => (error ? reject(error) : resolve()));
    });
  }

  end(): void {
    this.#opened().end();
  }

  /** TCP reset. */
  reset(): void {
    this.#opened().socket?.resetAndDestroy();
  }

  #opened(): ServerResponse {
    if (!this.#response) throw new Error('no request has arrived yet: await drip.opened');
    return this.#response;
  }
}
