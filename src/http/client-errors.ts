import { randomUUID } from 'node:crypto';
import { type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { type ErrorCode, errorBody } from './errors.ts';
import { EDGE_HEADERS } from './headers.ts';

const FAULTS: Readonly<Record<string, { status: number; code: ErrorCode; message: string }>> = {
  ERR_HTTP_REQUEST_TIMEOUT: { status: 408, code: 'INVALID_REQUEST', message: 'The request did not arrive in time.' },
  HPE_HEADER_OVERFLOW: {
    status: 431,
    code: 'REQUEST_TOO_LARGE',
    message: 'The request line and headers are larger than 64 KiB together.',
  },
};
const MALFORMED = {
  status: 400,
  code: 'INVALID_REQUEST',
  message: 'This is not a well-formed HTTP/1.1 request.',
} as const;

/** Answers what Node's HTTP parser refuses, before there is a request, in the shape of every other error (R10). */
export function answerClientError(error: NodeJS.ErrnoException, socket: Socket): void {
  const response = (socket as { _httpMessage?: ServerResponse })._httpMessage;
  if (error.code === 'ECONNRESET' || !socket.writable || response?.headersSent) {
    socket.destroy();
    return;
  }
  const { status, code, message } = FAULTS[error.code ?? ''] ?? MALFORMED;
  const body = JSON.stringify(errorBody(code, message));
  const headers = {
    ...EDGE_HEADERS,
    'x-trace-id': randomUUID(),
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(Buffer.byteLength(body)),
    connection: 'close',
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('\r\n')}\r\n\r\n${body}`);
}

/** Answers `expect` headers other than 100-continue, which Node would refuse with an empty body. */
export function answerExpectations(server: Server): void {
  server.on('checkExpectation', (_request, response) => {
    const body = JSON.stringify(
      errorBody('INVALID_REQUEST', 'The only expectation that is met is 100-continue.', {
        field: 'expect',
        rule: 'enum',
        allowed: ['100-continue'],
      }),
    );
    response.writeHead(417, {
      ...EDGE_HEADERS,
      'x-trace-id': randomUUID(),
      'content-type': 'application/json; charset=utf-8',
      'content-length': Buffer.byteLength(body),
    });
    response.end(body);
  });
}
