import { METHODS } from 'node:http';
import fc from 'fast-check';
import type { Conversation, Target } from './conversation.ts';
import { type Fault, FRAMING_FAULTS, HEADER_FAULTS, LINE_FAULTS, type Parts } from './faults-of-http.ts';

const HELLO = '{"text":"Hello world"}';
const json = (body: string) => ({ fields: ['content-type: application/json', `content-length: ${body.length}`], body });
const none = { fields: [], body: '' };

const WHOLE: readonly (Target & { readonly fields: readonly string[]; readonly body: string })[] = [
  { method: 'GET', path: '/', ...none },
  { method: 'HEAD', path: '/', ...none },
  { method: 'GET', path: '/tts/models', ...none },
  { method: 'GET', path: '/nowhere', ...none },
  { method: 'GET', path: '/top-up?amount=500', ...none },
  { method: 'GET', path: '/top-up/complete', ...none },
  { method: 'GET', path: '/credits/3b241101-e2bb-4255-8caf-4136c566a962', ...none },
  { method: 'GET', path: '/tts?text=Hello', ...none },
  { method: 'GET', path: '/x402/tts?text=Hello', ...none },
  { method: 'OPTIONS', path: '/tts', ...none },
  { method: 'POST', path: '/tts', ...json(HELLO) },
  { method: 'POST', path: '/x402/tts', ...json(HELLO) },
  { method: 'POST', path: '/x402/deposit', ...json('{"amountMicroUsd":100000}') },
  { method: 'POST', path: '/x402/tts/quote', ...json(`{"textLength":11,"textSha256":"${'a'.repeat(64)}"}`) },
  {
    ...{ method: 'POST', path: '/x402/tts', body: '16\r\n{"text":"Hello world"}\r\n0\r\n\r\n' },
    fields: ['content-type: application/json', 'transfer-encoding: chunked'],
  },
];

const whole = fc.constantFrom(...WHOLE).map(({ method, path, fields, body }) => ({
  target: { method, path },
  parts: { line: `${method} ${path} HTTP/1.1`, fields: ['host: a', ...fields], body, eol: '\r\n' },
}));

const fault: fc.Arbitrary<Fault> = fc.oneof(
  fc.constantFrom(...LINE_FAULTS),
  fc.constantFrom(...HEADER_FAULTS),
  fc.constantFrom(...FRAMING_FAULTS),
  // Only GET, HEAD, POST and OPTIONS are served.
  fc.constantFrom(...METHODS, 'FOO', 'G'.repeat(300)).map(
    (method): Fault =>
      (parts) => ({ ...parts, line: parts.line.replace(/^\S+/, method) }),
  ),
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

interface Broken {
  readonly target: Target;
  readonly bytes: string;
}

const broken: fc.Arbitrary<Broken> = fc
  .tuple(whole, fc.array(fault, { minLength: 1, maxLength: 2 }))
  .map(([{ target, parts }, faults]) => {
    const made = faults.reduce((at: Parts, change) => change(at), parts);
    const method = /^[A-Z-]+(?= )/.exec(made.line.trimStart())?.[0] ?? target.method;
    return { target: { method, path: target.path }, bytes: bytesOf(made) };
  });

const inOrder: fc.Arbitrary<Broken> = whole.map(({ target, parts }) => ({ target, bytes: bytesOf(parts) }));

/** Malformed HTTP on its own connection: alone or between valid requests, in one or more packets, complete or cut. */
export const brokenRequests: fc.Arbitrary<Conversation> = fc
  .record({
    before: fc.array(inOrder, { maxLength: 2 }),
    middle: fc.option(broken, { freq: 15, nil: undefined }),
    behind: fc.array(inOrder, { maxLength: 2 }),
    kept: fc.oneof(
      { weight: 5, arbitrary: fc.constant(1) },
      { weight: 1, arbitrary: fc.double({ min: 0, max: 1, noNaN: true }) },
    ),
    cuts: fc.oneof(
      { weight: 4, arbitrary: fc.constant([] as number[]) },
      { weight: 1, arbitrary: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 5 }) },
    ),
    pauseMs: fc.constantFrom(0, 0, 1, 5),
    ending: fc.constantFrom('answered', 'answered', 'half-close', 'half-close', 'reset'),
  })
  .map(({ before, middle, behind, kept, cuts, pauseMs, ending }) => {
    const requests = [...before, ...(middle ? [middle] : []), ...behind];
    const bytes = requests.map((request) => request.bytes).join('');
    const sent = bytes.slice(0, Math.ceil(bytes.length * kept));
    const places = [0, ...cuts.map((cut) => Math.floor(cut * sent.length)).sort((a, b) => a - b), sent.length];
    return {
      pieces: places
        .slice(1)
        .map((place, at) => sent.slice(places[at], place))
        .filter((piece) => piece !== ''),
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
