/** A request before it is encoded. */
export interface Parts {
  readonly line: string;
  readonly fields: readonly string[];
  /** With chunk framing if it is chunked. */
  readonly body: string;
  readonly eol: string;
}

export type Fault = (parts: Parts) => Parts;

/** Builds another request line from the original method and path. */
const line =
  (change: (method: string, path: string) => string): Fault =>
  (parts) => {
    const [method = '', path = ''] = parts.line.split(' ');
    return { ...parts, line: change(method, path) };
  };
const target = (change: (path: string) => string): Fault =>
  line((method, path) => `${method} ${change(path)} HTTP/1.1`);

export const LINE_FAULTS: readonly Fault[] = [
  ...[
    'HTTP/1.0',
    'HTTP/2.0',
    'HTTP/0.9',
    'HTTP/1.2',
    'HTTP/1.1 ',
    'http/1.1',
    'HTTP/1',
    'HTTP/11.1',
    'ICE/1.0',
    'HTTP/1.1\0',
    '',
  ].map((version) => line((method, path) => `${method} ${path} ${version}`)),
  ...['  ', '\t', '\0', '\x0b', ''].map((gap) => line((method, path) => `${method}${gap}${path} HTTP/1.1`)),
  ...['\r\n', '\r\n\r\n\r\n', '\n', ' ', '\0', '\xef\xbb\xbf', '\x16\x03\x01\x02\x00'].map((junk) =>
    line((method, path) => `${junk}${method} ${path} HTTP/1.1`),
  ),
  line((method, path) => `${method.toLowerCase()} ${path} HTTP/1.1`),
  line((method, path) => `${method} ${path}`),
  line(() => 'PRI * HTTP/2.0\r\n\r\nSM'),
  line((method) => `${method}`),
  line(() => ''),
  line((_, path) => `CONNECT ${path} HTTP/1.1`),
  line(() => 'CONNECT a.example:443 HTTP/1.1'),
  line(() => 'OPTIONS * HTTP/1.1'),
  target((path) => `http://a${path}`),
  target((path) => `HTTPS://a:1${path}`),
  target((path) => `ftp://a${path}`),
  target((path) => `//a${path}`),
  target((path) => `/.${path}`),
  target((path) => `/x/..${path}`),
  target((path) => `${path}#fragment`),
  target((path) => `${path}\0`),
  target((path) => `${path}\xff\xc3\x28`),
  target((path) => `${path}%`),
  target((path) => `${path}%00`),
  target((path) => `${path}?a b`),
  target((path) => `${path}?${'q'.repeat(70_000)}`),
  target((path) => `/${'y'.repeat(30_000)}${path}`),
  target((path) => path.slice(1)),
  target(() => '*'),
  target(() => 'a.example:80'),
  target(() => '\\'),
  target(() => 'http://'),
  target((path) => path.replaceAll('/', '\\')),
  target((path) => path.replaceAll('t', '%74')),
  target((path) => path.toUpperCase()),
];

const add =
  (...fields: string[]): Fault =>
  (parts) => ({ ...parts, fields: [...parts.fields, ...fields] });
const first =
  (...fields: string[]): Fault =>
  (parts) => ({ ...parts, fields: [...fields, ...parts.fields] });
const without = (parts: Parameters<Fault>[0], name: RegExp) => parts.fields.filter((field) => !name.test(field));

export const HEADER_FAULTS: readonly Fault[] = [
  ...[
    'x-a: b\r\n folded',
    'x-a : b',
    'x-a',
    ': b',
    ' x-a: b',
    'x-a\0: b',
    'x-a: \0',
    'x-a: b\rc',
    'x-a: b\nx-c: d',
  ].map((field) => add(field)),
  ...['x-ä: b', 'x-a: \xff\xfe', 'x a: b', 'x-a: \x7f', 'x-a:', '(): b', 'x-a:: b', '\x01: b'].map((field) =>
    add(field),
  ),
  first(' folded: at once'),
  add('host: b'),
  add('host:'),
  (parts) => ({ ...parts, fields: without(parts, /^host/) }),
  (parts) => ({ ...parts, fields: parts.fields.map((field) => field.replace('host: a', 'host: a b,c')) }),
  add(...Array.from({ length: 250 }, (_, index) => `x-${index}: a`)),
  add(...Array.from({ length: 3000 }, (_, index) => `x-${index}: a`)),
  add(`x-a: ${'b'.repeat(70_000)}`),
  add(`${'x'.repeat(70_000)}: b`),
  add('connection: upgrade', 'upgrade: websocket', 'sec-websocket-key: YQ==', 'sec-websocket-version: 13'),
  add('connection: upgrade, http2-settings', 'upgrade: h2c', 'http2-settings: AAMAAABk'),
  add('upgrade: h2c'),
  add('connection: close'),
  add('connection: keep-alive, close'),
  add('connection: content-length, host'),
  add('connection: close', 'connection: keep-alive'),
  add('keep-alive: timeout=99999999'),
  ...['100-continue', '100-CONTINUE', '100-continue, 100-continue', 'wonders', '', '200-ok'].map((value) =>
    add(`expect: ${value}`),
  ),
  add('te: trailers, gzip;q=x'),
  add('accept: ;;;,,,q=1/'),
  add(`accept: ${'a/b,'.repeat(5000)}`),
  add('accept-language: *-\0'),
  add('content-type: application/json', 'content-type: text/plain'),
  add('content-type: application/json; charset="'),
  add('content-encoding: gzip, gzip'),
  add('x-forwarded-for: 1.2.3.4, ::1, %%%', 'forwarded: for="_\\""'),
  add('x-http-method-override: DELETE'),
  add('range: bytes=0-0,1-1,2-2', 'range: lines=1'),
  add('if-modified-since: never', 'if-match: "'),
  add('x-credit-account: \xff', 'payment-signature: \xf0\x9f'),
  add(
    'x-x402-account: 0x0',
    'x-x402-nonce: ',
    'x-x402-expiry: 9'.repeat(9),
    'x-x402-max-amount: -1',
    'x-x402-signature: 0x',
  ),
  (parts) => ({ ...parts, eol: '\n' }),
  (parts) => ({ ...parts, eol: '\r' }),
  (parts) => ({ ...parts, eol: '\r\r\n' }),
];

const lengths =
  (...values: string[]): Fault =>
  (parts) => ({
    ...parts,
    fields: [
      ...without(parts, /^(content-length|transfer-encoding)/i),
      ...values.map((value) => `content-length: ${value.replaceAll('N', String(parts.body.length))}`),
    ],
  });
const coding =
  (values: readonly string[], body?: string): Fault =>
  (parts) => ({ ...parts, fields: [...without(parts, /^transfer-encoding/i), ...values], body: body ?? parts.body });
const CHUNKED = ['transfer-encoding: chunked'];
/** Replaces all framing by chunked, so that only the body is wrong. */
const chunks =
  (body: string): Fault =>
  (parts) => ({ ...parts, fields: [...without(parts, /^(content-length|transfer-encoding)/i), ...CHUNKED], body });

export const FRAMING_FAULTS: readonly Fault[] = [
  ...[
    'N, N',
    '+N',
    '-1',
    '-0',
    '0x10',
    '1e1',
    'N ',
    ' ',
    'N;',
    'a',
    '9'.repeat(30),
    '18446744073709551616',
    '007',
    '1.0',
  ].map((value) => lengths(value)),
  lengths('N', 'N'),
  lengths('N', '1'),
  lengths('0', 'N'),
  lengths(),
  lengths('5'),
  lengths('99'),
  lengths('4294967297'),
  coding(CHUNKED),
  coding(['content-length: 3', ...CHUNKED], '0\r\n\r\n'),
  coding([...CHUNKED, 'content-length: 3'], '3\r\nabc\r\n0\r\n\r\n'),
  ...[
    'gzip',
    'gzip, chunked',
    'chunked, gzip',
    'chunked, chunked',
    'identity',
    'xchunked',
    '"chunked"',
    'Chunked',
    'chunked;a',
    '\x0bchunked',
    '',
  ].map((value) => coding([`transfer-encoding: ${value}`], '0\r\n\r\n')),
  coding(['transfer-encoding : chunked'], '0\r\n\r\n'),
  coding(['transfer-encoding:\r\n chunked'], '0\r\n\r\n'),
  coding([...CHUNKED, ...CHUNKED], '0\r\n\r\n'),
  coding(['Transfer-Encoding: chunked', 'transfer-encoding: identity'], '0\r\n\r\n'),
  ...[
    'g',
    '-1',
    '0x1',
    'ffffffffffffffff',
    'fffffffffffffffff',
    '+1',
    ' 1',
    '1 ',
    '1;a=b',
    `1;${'a'.repeat(20_000)}`,
    '1\0',
    '',
    '00000000001',
    '1\n',
  ].map((size) => chunks(`${size}\r\na\r\n0\r\n\r\n`)),
  chunks('1\r\nab\r\n0\r\n\r\n'),
  chunks('1\r\na0\r\n\r\n'),
  chunks('1\na\n0\n\n'),
  chunks('1\r\na\r\n'),
  chunks('0\r\nx-trailer: a\r\n\r\n'),
  chunks('0\r\ncontent-length: 9\r\nhost: b\r\n\r\n'),
  chunks('0\r\nbad trailer\r\n\r\n'),
  chunks(`0\r\n${'x-t: a\r\n'.repeat(9000)}\r\n`),
  chunks('16\r\n{"text":"Hello world"}\r\n0\r\n\r\n'),
  chunks(`${'1\r\n{\r\n'.repeat(2000)}0\r\n\r\n`),
  (parts) => ({ ...parts, body: `${parts.body}more than was told` }),
  (parts) => ({ ...parts, body: parts.body.slice(0, parts.body.length / 2) }),
  (parts) => ({ ...parts, body: `${parts.body}\r\n\r\n` }),
  (parts) => ({ ...parts, body: '\0'.repeat(parts.body.length) }),
  (parts) => ({ ...parts, body: '\xff'.repeat(parts.body.length) }),
];
