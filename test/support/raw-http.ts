import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import type { Call } from './gateway.ts';

export interface RawAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Buffer;
}

/** A connection that sends bytes as they are. */
export interface RawConnection {
  readonly socket: Socket;
  /** Every answer, in order, once the server has closed the connection. */
  readonly answers: Promise<RawAnswer[]>;
}

/** @param methods of the requests, in order; those that are not named are no HEAD */
export async function connectRaw(url: string, methods?: readonly string[]): Promise<RawConnection> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  return { socket, answers: buffer(socket).then((received) => readToTheEnd(received, methods)) };
}

function readToTheEnd(received: Buffer, methods?: readonly string[]): RawAnswer[] {
  const { answers, rest } = readAnswers(received, methods);
  assert.equal(rest.length, 0, `the answer is cut: ${rest}`);
  return answers;
}

/** Sends bytes and reads the answers to the end of the connection. */
export async function exchange(url: string, bytes: string | Buffer, methods?: readonly string[]): Promise<RawAnswer[]> {
  const { socket, answers } = await connectRaw(url, methods);
  socket.write(bytes);
  return answers;
}

/** The bytes of a request; its body is JSON, if it has one. */
export function requestBytes(path: string, { method = 'GET', headers = {}, json }: Call = {}): string {
  const body = json === undefined ? '' : JSON.stringify(json);
  const framing = json === undefined ? {} : { 'content-type': 'application/json', 'content-length': body.length };
  const lines = Object.entries({ host: 'a', ...framing, ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n${body}`;
}

/**
 * The whole answers at the beginning of what was received, and the bytes after them.
 * @param methods of the requests, in their order: an answer to HEAD has no body
 */
export function readAnswers(received: Buffer, methods: readonly string[] = []): { answers: RawAnswer[]; rest: Buffer } {
  const answers: RawAnswer[] = [];
  let rest = received;
  let asked = 0;
  for (;;) {
    const end = rest.indexOf('\r\n\r\n');
    if (end < 0) return { answers, rest };
    const [line = '', ...fields] = rest.subarray(0, end).toString('latin1').split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(line)?.[1]);
    assert.ok(status, `no answer: ${line.slice(0, 200)}`);
    const headers = new Headers(fields.map((field) => field.split(/: ?(.*)/s, 2) as [string, string]));
    const isInterim = status < 200;
    const body = rest.subarray(end + 4);
    const hasBody = !isInterim && status !== 204 && methods[asked] !== 'HEAD';
    const read = hasBody ? readBody(body, headers) : { bytes: Buffer.alloc(0), length: 0 };
    if (!read) return { answers, rest };
    rest = body.subarray(read.length);
    answers.push({ status, headers, bytes: read.bytes });
    if (!isInterim) asked += 1;
  }
}

/** Undefined when it has not come whole. */
function readBody(received: Buffer, headers: Headers): { bytes: Buffer; length: number } | undefined {
  if (headers.get('transfer-encoding') === 'chunked') return readChunks(received);
  const length = Number(headers.get('content-length') ?? 0);
  return received.length < length ? undefined : { bytes: received.subarray(0, length), length };
}

function readChunks(received: Buffer): { bytes: Buffer; length: number } | undefined {
  const chunks: Buffer[] = [];
  let at = 0;
  for (;;) {
    const line = received.indexOf('\r\n', at);
    if (line < 0) return undefined;
    const size = Number.parseInt(received.subarray(at, line).toString(), 16);
    at = line + 2 + size + 2;
    if (at > received.length) return undefined;
    if (size === 0) return { bytes: Buffer.concat(chunks), length: at };
    chunks.push(received.subarray(line + 2, line + 2 + size));
  }
}
