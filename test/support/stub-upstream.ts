import { EventEmitter, once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Test } from 'tap';
import { silentMp3, silentWav } from './silent-audio.ts';
import { type BodyOptions, body, type Mode, type RecordedRequest, start } from './upstream-answer.ts';

export { silentMp3, silentWav } from './silent-audio.ts';
export { type BodyOptions, body, ControlledStream, type Mode, type RecordedRequest } from './upstream-answer.ts';

export interface StubUpstream {
  /** Ends in `/v1`. */
  readonly url: string;
  readonly requests: RecordedRequest[];
  /** How the next requests are answered; may be changed at any time. First: a second of MP3. */
  mode: Mode;
  /** Connections that are open now. */
  readonly openConnections: number;
  /** Resolves once at least this many requests have arrived since the start. */
  waitForRequests(count: number): Promise<void>;
  /** Resolves once no connection is open. */
  waitForNoConnection(): Promise<void>;
  close(): Promise<void>;
}

/** A second of MP3, or `ms` milliseconds. */
export const mp3 = (ms = 1000, options: BodyOptions = {}): Mode => body(silentMp3(ms), options);

/** A second of WAV, or `ms` milliseconds. */
export const wav = (ms = 1000, options: BodyOptions = {}): Mode =>
  body(silentWav(ms), { contentType: 'audio/wav', ...options });

/** An error in OpenAI's shape with this status; its message names `canary`, so that a leak can be found. */
export const openAiError = (status: number, canary = 'upstream detail', headers: Record<string, string> = {}): Mode =>
  json({ error: { message: canary, type: 'server_error', param: null, code: null } }, status, headers);

/** A 422 as FastAPI services send it, which repeats the request's input. */
export const fastApiError = (): Mode => (request, response) => {
  const detail = [{ type: 'value_error', loc: ['body', 'voice'], msg: 'unknown voice', input: request.body }];
  json({ detail }, 422)(request, response);
};

export const json = (value: unknown, status = 200, headers: Record<string, string> = {}): Mode =>
  body(JSON.stringify(value), { status, contentType: 'application/json', headers });

/** 429 with `Retry-After` when given: seconds or an HTTP date. */
export const tooManyRequests = (retryAfter?: string): Mode =>
  openAiError(429, 'rate limit', retryAfter === undefined ? {} : { 'retry-after': retryAfter });

export const html = (status = 200): Mode =>
  body('<!doctype html><title>Bad gateway</title>', { status, contentType: 'text/html; charset=utf-8' });

/** Bytes that are labelled as audio and are none. */
export const garbage = (contentType = 'audio/mpeg'): Mode => body(Buffer.alloc(2000, 0x5a), { contentType });

export const empty = (options: BodyOptions = {}): Mode => body('', options);

export const redirect = (location: string, status = 302): Mode =>
  body('', { status, headers: { location }, contentType: 'text/plain' });

/** Never answers; ends when the client goes away. */
export const hangBeforeHeaders = (): Mode => () => {};

/** Sends headers and these bytes, and then nothing more. */
export const hangInBody = (bytes: Uint8Array = silentMp3(480), options: BodyOptions = {}): Mode =>
  partial(bytes, options, () => {});

/** Cuts the connection (TCP reset) without answering. */
export const resetBeforeHeaders = (): Mode => (_request, response) => {
  response.socket?.resetAndDestroy();
};

/** Closes the connection in an orderly way (FIN) without answering. */
export const closeBeforeHeaders = (): Mode => (_request, response) => {
  response.socket?.end();
};

/** Sends headers and these bytes, then cuts the connection (TCP reset). */
export const resetInBody = (bytes: Uint8Array = silentMp3(480), options: BodyOptions = {}): Mode =>
  partial(bytes, options, (socket) => socket.resetAndDestroy());

/** Announces more by Content-Length than the bytes it sends, then closes in an orderly way. */
export const contentLengthTooLarge = (bytes: Uint8Array = silentMp3(480)): Mode =>
  partial(bytes, {}, (socket) => socket.end());

/** Sends these bytes chunked and closes in an orderly way before the last chunk. */
export const cutChunked = (bytes: Uint8Array = silentMp3(480)): Mode =>
  partial(bytes, { framing: 'chunked' }, (socket) => socket.end());

/** Half of a longer answer: the rest never comes. */
function partial(bytes: Uint8Array, options: BodyOptions, then: (socket: Socket) => void): Mode {
  return (_request, response) => {
    start(response, { ...options, length: bytes.length + 1000 });
    const { socket } = response;
    response.write(bytes, () => socket && then(socket));
  };
}

/** Writes these bytes to the connection as they are, instead of an HTTP answer, and closes it. */
export const raw = (bytes: Uint8Array | string): Mode => {
  return (_request, response) => {
    response.socket?.end(bytes);
  };
};

/** A speech service in OpenAI's shape on 127.0.0.1, and Kokoro-FastAPI's for captions; anything else is 404. */
/** One that ends with the test. */
export async function testUpstream(t: Test): Promise<StubUpstream> {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  return upstream;
}

export async function startStubUpstream(
  options: { mode?: Mode; tls?: { key: string; cert: string } } = {},
): Promise<StubUpstream> {
  const requests: RecordedRequest[] = [];
  const sockets = new Map<Socket, number>();
  const events = new EventEmitter().setMaxListeners(0);
  let connections = 0;

  const onRequest: RequestListener = async (incoming, response) => {
    const closed = once(response, 'close').then(() => (response.writableFinished ? 'complete' : 'aborted'));
    const connection = sockets.get(incoming.socket) ?? 0;
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of incoming) chunks.push(chunk);
    } catch {
      return;
    }
    const { method = '', url: path = '', headers } = incoming;
    const request = { method, path, headers, body: parse(Buffer.concat(chunks)), connection, closed } as const;
    requests.push(request as RecordedRequest);
    const isSpeech = method === 'POST' && /\/(v1\/audio\/speech|dev\/captioned_speech)(\?|$)/.test(path);
    const mode = isSpeech ? stub.mode : openAiError(404);
    mode(request as RecordedRequest, response);
    events.emit('change');
  };
  const server = options.tls ? createTlsServer(options.tls, onRequest) : createServer(onRequest);
  server.on(options.tls ? 'secureConnection' : 'connection', (socket: Socket) => {
    sockets.set(socket, ++connections);
    socket.on('error', () => {});
    socket.once('close', () => {
      sockets.delete(socket);
      events.emit('change');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;

  const until = async (isTrue: () => boolean) => {
    while (!isTrue()) await once(events, 'change');
  };
  const stub: StubUpstream = {
    url: `${options.tls ? 'https' : 'http'}://127.0.0.1:${port}/v1`,
    requests,
    mode: options.mode ?? mp3(),
    get openConnections() {
      return sockets.size;
    },
    waitForRequests: (count) => until(() => requests.length >= count),
    waitForNoConnection: () => until(() => sockets.size === 0),
    async close() {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
  return stub;
}

function parse(bytes: Buffer): Record<string, unknown> | undefined {
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}
