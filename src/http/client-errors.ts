import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { EDGE_HEADERS, METHODS } from './headers.ts';
import { arriving, linger } from './linger.ts';
import type { RecordRefusal } from './request-record.ts';
import { type ErrorBody, type ErrorCode, errorBody } from './structured-error.ts';

const LATE = 'ERR_HTTP_REQUEST_TIMEOUT';
const FAULTS: Readonly<Record<string, { status: number; code: ErrorCode; message: string }>> = {
  [LATE]: { status: 408, code: 'INVALID_REQUEST', message: 'The request did not arrive in time.' },
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

/** Connections on which something came that is not HTTP: it is answered in its turn, and no operation begins there. */
const broken = new WeakSet<Socket>();
/** Answers of operations that began before their requests had been read to the end. */
const begun = new WeakSet<ServerResponse>();

/**
 * Tells whether the operation of a request may begin: not when bytes that are no HTTP followed it, for then its caller
 * is told 400, and nothing may be charged. An operation that has begun is answered before such bytes are.
 */
export function mayBegin(request: IncomingMessage, response: ServerResponse): boolean {
  if (broken.has(request.socket)) return false;
  if (!request.complete) begun.add(response);
  return true;
}

/** Answers what Node's HTTP parser refuses, before there is a request, in the shape of every other error (R10). */
export function answerClientError(error: NodeJS.ErrnoException, socket: Socket, record: RecordRefusal): void {
  // After the last answer, what comes is discarded.
  if (broken.has(socket) || (socket.writableEnded && error.code !== 'ECONNRESET')) return;
  if (error.code === 'ECONNRESET' || !socket.writable || (error.code === LATE && isAnswered(socket))) {
    socket.destroy(socket.errored ?? undefined);
    return;
  }
  broken.add(socket);
  const { status, code, message } = FAULTS[error.code ?? ''] ?? MALFORMED;
  inTurn(socket, (response) => {
    const traceIdOf = (bytes: number) => record({ method: response?.req.method, status, bytes, response });
    endWith(socket, status, errorBody(code, message), traceIdOf, {}, response?.req.method === 'HEAD');
  });
}

/** Answers CONNECT, which no path has (R9), and for which Node has no response, only the connection. */
export function answerConnect(server: Server, record: RecordRefusal): void {
  server.on('connect', ({ method }: IncomingMessage, socket: Socket) => {
    // Node has taken its own listeners off the connection; what is still being answered there needs these.
    socket.on('error', () => socket.destroy());
    socket.on('drain', () => responseOn(socket)?.emit('drain'));
    const details = { field: 'method', rule: 'enum', allowed: [...METHODS] };
    const body = errorBody('INVALID_REQUEST', `CONNECT is not served here; ${METHODS.join(', ')} are.`, details);
    const traceIdOf = (bytes: number) => record({ method, status: 405, bytes });
    inTurn(socket, () => endWith(socket, 405, body, traceIdOf, { allow: METHODS.join(', ') }));
  });
}

/** The answer that is being written to a connection, or is to be written next. */
const responseOn = (socket: Socket) => (socket as { _httpMessage?: ServerResponse | null })._httpMessage ?? undefined;

/** Whether what has not wholly come is the body of a request that has got its answer. */
const isAnswered = (socket: Socket): boolean => arriving(socket) !== undefined && !responseOn(socket);

/** Waits for the answers to what came before on a connection; one to a request that never ended and never began is none. */
function inTurn(socket: Socket, answer: (unbegun: ServerResponse | undefined) => void): void {
  const response = responseOn(socket);
  if (response && (response.req.complete || response.headersSent || begun.has(response))) {
    response.once('close', () => inTurn(socket, answer));
  } else if (socket.writable) answer(response);
}

/** Writes the last answer of a connection. */
function endWith(
  socket: Socket,
  status: number,
  body: ErrorBody,
  traceIdOf: (bytes: number) => string,
  more: Record<string, string> = {},
  isHead = false,
): void {
  const text = JSON.stringify(body);
  const bytes = Buffer.byteLength(text);
  const headers = {
    ...EDGE_HEADERS,
    ...more,
    'x-trace-id': traceIdOf(isHead ? 0 : bytes),
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(bytes),
    connection: 'close',
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('\r\n')}\r\n\r\n${isHead ? '' : text}`);
  linger(socket);
}

/** Answers `expect` headers other than 100-continue, which Node would refuse with an empty body. */
export function answerExpectations(server: Server, record: RecordRefusal): void {
  server.on('checkExpectation', ({ method }: IncomingMessage, response: ServerResponse) => {
    const body = JSON.stringify(
      errorBody('INVALID_REQUEST', 'The only expectation that is met is 100-continue.', {
        field: 'expect',
        rule: 'enum',
        allowed: ['100-continue'],
      }),
    );
    const bytes = Buffer.byteLength(body);
    response.writeHead(417, {
      ...EDGE_HEADERS,
      'x-trace-id': record({ method, status: 417, bytes }),
      'content-type': 'application/json; charset=utf-8',
      'content-length': bytes,
    });
    response.end(body);
  });
}
