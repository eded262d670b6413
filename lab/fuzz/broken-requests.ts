import { METHODS } from 'node:http';
import fc from 'fast-check';
import { seldom } from './contract-requests.ts';
import type { Conversation, Target } from './conversation.ts';

/** A request before it is encoded. */
interface Parts {
  readonly line: string;
  readonly fields: readonly string[];
  /** With chunk framing if it is chunked. */
  readonly body: string;
  readonly eol: string;
}

type Fault = (parts: Parts) => Parts;

/** Of values that may have blanks, separated by bars. */
const each = <T>(values: string, make: (value: string) => T): T[] => values.split('|').map(make);

/** Builds another request line from the original method and path. */
const line =
  (change: (method: string, path: string) => string): Fault =>
  (parts) => {
    const [method = '', path = ''] = parts.line.split(' ');
    return { ...parts, line: change(method, path) };
  };
const target = (change: (path: string) => string): Fault =>
  line((method, path) => `${method} ${change(path)} HTTP/1.1`);

const VERSIONS = 'HTTP/1.0|HTTP/2.0|HTTP/0.9|HTTP/1.2|HTTP/1.1 |http/1.1|HTTP/1|HTTP/11.1|ICE/1.0|HTTP/1.1\0|';
const LINES = '|PRI * HTTP/2.0\r\n\r\nSM|CONNECT a.example:443 HTTP/1.1|OPTIONS * HTTP/1.1';
const BEFORE_PATH = 'http://a|HTTPS://a:1|ftp://a|//a|/.|/x/..';
const BEHIND_PATH = '#fragment|\0|\xff\xc3\x28|%|%00|?a b';
const LINE_FAULTS: readonly Fault[] = [
  ...each(VERSIONS, (version) => line((method, path) => `${method} ${path} ${version}`)),
  ...each('  |\t|\0|\x0b|', (gap) => line((method, path) => `${method}${gap}${path} HTTP/1.1`)),
  ...each('\r\n|\r\n\r\n\r\n|\n| |\0|\xef\xbb\xbf|\x16\x03\x01\x02\x00', (junk) =>
    line((method, path) => `${junk}${method} ${path} HTTP/1.1`),
  ),
  ...each(LINES, (whole) => line(() => whole)),
  line((method, path) => `${method.toLowerCase()} ${path} HTTP/1.1`),
  line((method, path) => `${method} ${path}`),
  line((method) => method),
  line((_, path) => `CONNECT ${path} HTTP/1.1`),
  ...each(BEFORE_PATH, (before) => target((path) => `${before}${path}`)),
  ...each(BEHIND_PATH, (behind) => target((path) => `${path}${behind}`)),
  ...each('*|a.example:80|\\|http://', (whole) => target(() => whole)),
  target((path) => `${path}?${'q'.repeat(70_000)}`),
  target((path) => `/${'y'.repeat(30_000)}${path}`),
  target((path) => path.slice(1)),
  target((path) => path.replaceAll('/', '\\')),
  target((path) => path.replaceAll('t', '%74')),
  target((path) => path.toUpperCase()),
];

const add =
  (...fields: string[]): Fault =>
  (parts) => ({ ...parts, fields: [...parts.fields, ...fields] });
const without = ({ fields }: Parts, name: RegExp) => fields.filter((field) => !name.test(field));

/** Of one header. */
const FIELDS =
  'x-a: b\r\n folded|x-a : b|x-a|: b| x-a: b|x-a\0: b|x-a: \0|x-a: b\rc|x-a: b\nx-c: d|x-ä: b|x-a: \xff\xfe|x a: b|' +
  'x-a: \x7f|x-a:|(): b|x-a:: b|\x01: b|host: b|host:|upgrade: h2c|connection: close|connection: keep-alive, close|' +
  'connection: content-length, host|keep-alive: timeout=99999999|expect: 100-continue|expect: 100-CONTINUE|' +
  'expect: 100-continue, 100-continue|expect: wonders|expect: |expect: 200-ok|te: trailers, gzip;q=x|' +
  'accept: ;;;,,,q=1/|accept-language: *-\0|content-type: application/json; charset="|content-encoding: gzip, gzip|' +
  'x-http-method-override: DELETE';
const HEADER_FAULTS: readonly Fault[] = [
  ...each(FIELDS, (field) => add(field)),
  (parts) => ({ ...parts, fields: [' folded: at once', ...parts.fields] }),
  (parts) => ({ ...parts, fields: without(parts, /^host/) }),
  (parts) => ({ ...parts, fields: parts.fields.map((field) => field.replace('host: a', 'host: a b,c')) }),
  ...[250, 3000].map((length) => add(...Array.from({ length }, (_, index) => `x-${index}: a`))),
  add(`x-a: ${'b'.repeat(70_000)}`),
  add(`${'x'.repeat(70_000)}: b`),
  add(`accept: ${'a/b,'.repeat(5000)}`),
  add('connection: upgrade', 'upgrade: websocket', 'sec-websocket-key: YQ==', 'sec-websocket-version: 13'),
  add('connection: upgrade, http2-settings', 'upgrade: h2c', 'http2-settings: AAMAAABk'),
  add('connection: close', 'connection: keep-alive'),
  add('content-type: application/json', 'content-type: text/plain'),
  add('x-forwarded-for: 1.2.3.4, ::1, %%%', 'forwarded: for="_\\""'),
  add('range: bytes=0-0,1-1,2-2', 'range: lines=1'),
  add('if-modified-since: never', 'if-match: "'),
  add('x-credit-account: \xff', 'payment-signature: \xf0\x9f'),
  add('x-x402-account: 0x0', 'x-x402-nonce: ', 'x-x402-expiry: 999', 'x-x402-max-amount: -1', 'x-x402-signature: 0x'),
  ...each(
    '\n|\r|\r\r\n',
    (eol): Fault =>
      (parts) => ({ ...parts, eol }),
  ),
];

const FRAMING = /^(content-length|transfer-encoding)/i;
/** N is the true length. */
const lengths =
  (...values: string[]): Fault =>
  (parts) => {
    const fields = values.map((value) => `content-length: ${value.replaceAll('N', String(parts.body.length))}`);
    return { ...parts, fields: [...without(parts, FRAMING), ...fields] };
  };
const coded =
  (fields: string, body = '0\r\n\r\n'): Fault =>
  (parts) => ({ ...parts, fields: [...without(parts, /^transfer-encoding/i), ...fields.split(' & ')], body });
/** Replaces all framing by chunked, so that only the body is wrong. */
const chunks =
  (body: string): Fault =>
  (parts) => ({ ...parts, fields: [...without(parts, FRAMING), 'transfer-encoding: chunked'], body });
const body =
  (change: (body: string) => string): Fault =>
  (parts) => ({ ...parts, body: change(parts.body) });

const LENGTHS = 'N, N|+N|-1|-0|0x10|1e1|N | |N;|a|18446744073709551616|007|1.0|5|99|4294967297';
const CODINGS =
  'gzip|gzip, chunked|chunked, gzip|chunked, chunked|identity|xchunked|"chunked"|Chunked|chunked;a|\x0bchunked|';
const SIZES = 'g|-1|0x1|ffffffffffffffff|fffffffffffffffff|+1| 1|1 |1;a=b|1\0||00000000001|1\n';
const CHUNKS =
  '1\r\nab\r\n0\r\n\r\n|1\r\na0\r\n\r\n|1\na\n0\n\n|1\r\na\r\n|0\r\nx-trailer: a\r\n\r\n|0\r\nbad trailer\r\n\r\n|' +
  '0\r\ncontent-length: 9\r\nhost: b\r\n\r\n|16\r\n{"text":"Hello world"}\r\n0\r\n\r\n';
const FRAMING_FAULTS: readonly Fault[] = [
  ...each(LENGTHS, (length) => lengths(length)),
  lengths('9'.repeat(30)),
  lengths('N', 'N'),
  lengths('N', '1'),
  lengths('0', 'N'),
  lengths(),
  add('transfer-encoding: chunked'),
  coded('content-length: 3 & transfer-encoding: chunked'),
  coded('transfer-encoding: chunked & content-length: 3', '3\r\nabc\r\n0\r\n\r\n'),
  ...each(CODINGS, (coding) => coded(`transfer-encoding: ${coding}`)),
  coded('transfer-encoding : chunked'),
  coded('transfer-encoding:\r\n chunked'),
  coded('transfer-encoding: chunked & transfer-encoding: chunked'),
  coded('Transfer-Encoding: chunked & transfer-encoding: identity'),
  ...each(SIZES, (size) => chunks(`${size}\r\na\r\n0\r\n\r\n`)),
  ...each(CHUNKS, chunks),
  chunks(`1;${'a'.repeat(20_000)}\r\na\r\n0\r\n\r\n`),
  chunks(`0\r\n${'x-t: a\r\n'.repeat(9000)}\r\n`),
  chunks(`${'1\r\n{\r\n'.repeat(2000)}0\r\n\r\n`),
  body((whole) => `${whole}more than was told`),
  body((whole) => whole.slice(0, whole.length / 2)),
  body((whole) => `${whole}\r\n\r\n`),
  body((whole) => '\0'.repeat(whole.length)),
  body((whole) => '\xff'.repeat(whole.length)),
];

const PATHS_OF_GET =
  '/|/tts/models|/nowhere|/top-up?amount=500|/top-up/complete|/credits/3b241101-e2bb-4255-8caf-4136c566a962|' +
  '/tts?text=Hello|/x402/tts?text=Hello';
const HELLO = '{"text":"Hello world"}';
const BODIES = [
  ['/tts', HELLO],
  ['/x402/tts', HELLO],
  ['/x402/deposit', '{"amountMicroUsd":100000}'],
  ['/x402/tts/quote', `{"textLength":11,"textSha256":"${'a'.repeat(64)}"}`],
] as const;

const whole = fc.constantFrom(
  ...each(PATHS_OF_GET, (path) => request('GET', path)),
  request('HEAD', '/'),
  request('OPTIONS', '/tts'),
  ...BODIES.map(([path, sent]) => request('POST', path, sent, `content-length: ${sent.length}`)),
  request('POST', '/x402/tts', `16\r\n${HELLO}\r\n0\r\n\r\n`, 'transfer-encoding: chunked'),
);

function request(method: string, path: string, body = '', framing?: string) {
  const fields = framing === undefined ? [] : ['content-type: application/json', framing];
  const parts: Parts = { line: `${method} ${path} HTTP/1.1`, fields: ['host: a', ...fields], body, eol: '\r\n' };
  return { target: { method, path }, parts };
}

const fault: fc.Arbitrary<Fault> = fc.oneof(
  fc.constantFrom(...LINE_FAULTS),
  fc.constantFrom(...HEADER_FAULTS),
  fc.constantFrom(...FRAMING_FAULTS),
  // Only GET, HEAD, POST and OPTIONS are served.
  fc.constantFrom(...METHODS, 'FOO', 'G'.repeat(300)).map((method) => line((_, path) => `${method} ${path} HTTP/1.1`)),
  // Replaces any byte of the request line with any other.
  fc.tuple(fc.nat({ max: 60 }), fc.nat({ max: 255 })).map(
    ([at, byte]): Fault =>
      (parts) => {
        const place = at % parts.line.length;
        return { ...parts, line: parts.line.slice(0, place) + String.fromCharCode(byte) + parts.line.slice(place + 1) };
      },
  ),
);

const bytesOf = ({ line, fields, body, eol }: Parts): string => `${[line, ...fields].join(eol)}${eol}${eol}${body}`;

interface Encoded {
  readonly target: Target;
  readonly bytes: string;
}

const broken: fc.Arbitrary<Encoded> = fc
  .tuple(whole, fc.array(fault, { minLength: 1, maxLength: 2 }))
  .map(([{ target, parts }, faults]) => {
    const made = faults.reduce((at: Parts, change) => change(at), parts);
    const method = /^[A-Z-]+(?= )/.exec(made.line.trimStart())?.[0] ?? target.method;
    return { target: { method, path: target.path }, bytes: bytesOf(made) };
  });

const inOrder: fc.Arbitrary<Encoded> = whole.map(({ target, parts }) => ({ target, bytes: bytesOf(parts) }));
const fraction = fc.double({ min: 0, max: 1, noNaN: true });

/** Malformed HTTP on its own connection: alone or between valid requests, in one or more packets, complete or cut. */
export const brokenRequests: fc.Arbitrary<Conversation> = fc
  .record({
    before: fc.array(inOrder, { maxLength: 2 }),
    middle: fc.option(broken, { freq: 15, nil: undefined }),
    behind: fc.array(inOrder, { maxLength: 2 }),
    kept: seldom(5, fc.constant(1), fraction),
    cuts: seldom(4, fc.constant([] as number[]), fc.array(fraction, { maxLength: 5 })),
    pauseMs: fc.constantFrom(0, 0, 1, 5),
    ending: fc.constantFrom('answered', 'answered', 'half-close', 'half-close', 'reset'),
  })
  .map(({ before, middle, behind, kept, cuts, pauseMs, ending }) => {
    const requests = [...before, ...(middle ? [middle] : []), ...behind];
    const bytes = requests.map((request) => request.bytes).join('');
    const sent = bytes.slice(0, Math.ceil(bytes.length * kept));
    const places = [...cuts.map((cut) => Math.floor(cut * sent.length)).sort((a, b) => a - b), sent.length];
    return {
      pieces: places.map((place, at) => sent.slice(places[at - 1] ?? 0, place)).filter((piece) => piece !== ''),
      pauseMs,
      ending,
      targets: requests.map(({ target }) => target),
      isHttp: middle === undefined && kept === 1,
    };
  });

/** Requests that never end while the client waits: the server has to close the connection. */
export const unfinishedRequests: fc.Arbitrary<Conversation> = fc
  .tuple(whole, fc.constantFrom(0, 3, 12, 30, 1000))
  .map(([{ target, parts }, length]) => {
    const bytes = bytesOf({ ...parts, fields: [...parts.fields, 'content-length: 999'], body: '{' });
    return { pieces: [bytes.slice(0, length)], pauseMs: 0, ending: 'of the server', targets: [target], isHttp: false };
  });
