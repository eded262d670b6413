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

export async function connectRaw(url: string): Promise<RawConnection> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  return { socket, answers: buffer(socket).then(readAnswers) };
}

/** Sends bytes and reads the answers to the end of the connection. */
export async function exchange(url: string, bytes: string | Buffer): Promise<RawAnswer[]> {
  const { socket, answers } = await connectRaw(url);
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

function readAnswers(received: Buffer): RawAnswer[] {
  const answers: RawAnswer[] = [];
  let rest = received;
  while (rest.length > 0) {
    const end = rest.indexOf('\r\n\r\n');
    assert.ok(end > 0, `no answer: ${rest}`);
    const [line = '', ...fields] = rest.subarray(0, end).toString().split('\r\n');
    const headers = new Headers(fields.map((field) => field.split(/: ?(.*)/s, 2) as [string, string]));
    rest = rest.subarray(end + 4);
    const isChunked = headers.get('transfer-encoding') === 'chunked';
    const read = isChunked ? readChunks(rest) : Number(headers.get('content-length') ?? 0);
    const bytes = typeof read === 'number' ? rest.subarray(0, read) : read.bytes;
    rest = rest.subarray(typeof read === 'number' ? read : read.length);
    answers.push({ status: Number(line.split(' ')[1]), headers, bytes });
  }
  return answers;
}

function readChunks(received: Buffer): { bytes: Buffer; length: number } {
  const chunks: Buffer[] = [];
  let at = 0;
  for (;;) {
    const line = received.indexOf('\r\n', at);
    assert.ok(line > 0, 'the answer is cut');
    const size = Number.parseInt(received.subarray(at, line).toString(), 16);
    at = line + 2 + size + 2;
    assert.ok(at <= received.length, 'the answer is cut');
    if (size === 0) return { bytes: Buffer.concat(chunks), length: at };
    chunks.push(received.subarray(line + 2, line + 2 + size));
  }
}
