import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { readContract } from '../../codegen/contract.ts';
import type { Media, Operation, Parameter } from '../../codegen/model.ts';
import { projectFile } from '../../test/support/project.ts';
import type { Conversation } from './conversation.ts';
import { oddText, valuesFor } from './values.ts';

const { operations } = readContract(readFileSync(projectFile('openapi.yaml'), 'utf8'));

/** Existing values, by the name of the parameter or member that takes them. */
export type Known = Readonly<Record<string, readonly string[]>>;

interface Drawn {
  readonly method: string;
  readonly path: string;
  readonly headers: readonly (readonly [string, string])[];
  /** Bytes as latin1. */
  readonly body: string | undefined;
}

/** UTF-8 bytes of the text, as latin1. */
const utf8 = (text: string): string => Buffer.from(text.toWellFormed()).toString('latin1');

/** Requests that mostly follow the contract, each on its own connection. */
export function contractRequests(known: Known): fc.Arbitrary<Conversation> {
  const drawn = fc.oneof(...operations.map((operation) => requestOf(operation, known)));
  return fc
    .tuple(drawn, fc.constantFrom('answered', 'answered', 'answered', 'answered', 'half-close', 'reset'), fc.boolean())
    .map(([request, ending, closes]) => ({
      pieces: [bytesOf(request, closes)],
      pauseMs: 0,
      ending,
      targets: [{ method: request.method, path: request.path }],
      isHttp: true,
    }));
}

function requestOf(operation: Operation, known: Known): fc.Arbitrary<Drawn> {
  const named = (place: Parameter['in']) => {
    const parameters = operation.parameters.filter((parameter) => parameter.in === place);
    return fc.record(Object.fromEntries(parameters.map((each) => [each.name, textFor(each, known)])), {
      requiredKeys: parameters.filter(({ required }) => required).map(({ name }) => name),
    });
  };
  const contents = operation.body?.content ?? [];
  const body =
    contents.length > 0 ? fc.oneof(...contents.map((media) => bodyOf(media, known))) : fc.constant(undefined);
  return fc
    .record({
      params: named('path'),
      query: named('query'),
      headers: named('header'),
      body: fc.oneof({ weight: 12, arbitrary: body }, { weight: 1, arbitrary: oddBody }),
      method: fc.oneof(
        { weight: 25, arbitrary: fc.constant(operation.method) },
        { weight: 1, arbitrary: fc.constantFrom('HEAD', 'PUT', 'OPTIONS', 'DELETE', 'GET', 'POST', 'PATCH') },
      ),
      twist: fc.oneof({ weight: 25, arbitrary: fc.constant('') }, { weight: 1, arbitrary: fc.constantFrom(...TWISTS) }),
      more: fc.oneof(
        { weight: 8, arbitrary: fc.constant([]) },
        { weight: 1, arbitrary: fc.constantFrom(...MORE_HEADERS) },
      ),
    })
    .map(({ params, query, headers, body, method, twist, more }) => {
      const path = operation.path.replaceAll(/\{(\w+)\}/g, (_, name) => encodeURIComponent(params[name] || 'x'));
      const search = new URLSearchParams(given(query)).toString();
      const sendable = given(headers).map(
        ([name, value]) =>
          [
            name,
            utf8(value)
              .replaceAll(/[^\t\x20-\x7e\x80-\xff]/g, '?')
              .trim(),
          ] as const,
      );
      return {
        method,
        path: `${search ? `${path}?${search}` : path}${twist}`.slice(0, 50_000),
        headers: [
          ...sendable.filter(([, value]) => value.length < 8000),
          ...(body?.type ? [['content-type', body.type] as const] : []),
          ...more,
        ],
        body: body?.bytes,
      };
    });
}

/** Suffixes of a request target, sent without encoding. */
const TWISTS = [
  '/',
  '//',
  '%2f',
  '/..',
  '?',
  '&',
  '?a=1&a=2',
  '&text=a&text=b',
  '&model=',
  '%zz',
  '%ff',
  '%00',
  ';a=b',
  '%C3%28',
];
const MORE_HEADERS: readonly (readonly (readonly [string, string])[])[] = [
  [['accept', 'text/html']],
  [['accept', 'application/json;q=0, */*;q=x']],
  [['accept-encoding', 'gzip, br']],
  [['content-encoding', 'gzip']],
  [
    ['origin', 'https://a.example'],
    ['access-control-request-method', 'POST'],
  ],
  [['x-forwarded-for', '192.0.2.1, nonsense']],
  [['cookie', 'a=b; c']],
  [['if-none-match', '*']],
  [['range', 'bytes=5-2']],
  [['expect', '100-continue']],
  [['expect', 'wonders']],
  [['authorization', 'Bearer x']],
  [
    ['x-credit-account', 'a'],
    ['x-credit-account', 'b'],
  ],
  [['content-type', 'text/plain; charset=latin1']],
];

const textFor = ({ name, schema }: Parameter, known: Known): fc.Arbitrary<string> =>
  fc.oneof(
    valuesFor(schema).map((value) =>
      (typeof value === 'string' ? value : (JSON.stringify(value) ?? '')).toWellFormed(),
    ),
    ...(known[name] ? [fc.constantFrom(...known[name])] : []),
  );

interface Body {
  readonly type: string;
  readonly bytes: string;
}

const oddBody: fc.Arbitrary<Body> = fc.record({
  type: fc.constantFrom(
    'application/json',
    'application/json; charset=utf-16',
    'text/html',
    '',
    'a/b; c',
    'text/plain',
  ),
  bytes: fc.oneof(
    oddText.map(utf8),
    fc.constantFrom(
      '\xff\xfe',
      '{"text":"\xc3\x28"}',
      '\xef\xbb\xbf{"text":"a"}',
      '[[[[[[[[',
      '{"text":"a","text":"b"}',
    ),
    fc.constantFrom(70_000, 65_536, 65_537, 32_769).map((length) => `{"text":"${'a'.repeat(length)}"}`),
    fc.constant(`${'['.repeat(30_000)}${']'.repeat(30_000)}`),
  ),
});

function bodyOf({ type, schema }: Media, known: Known): fc.Arbitrary<Body> {
  const given = fc.tuple(valuesFor(schema), fc.constantFrom(type, type, type, `${type}; charset=utf-8`));
  return given.map(([value, sent]) => ({ type: sent, bytes: encode(type, value, known) }));
}

function encode(type: string, value: unknown, known: Known): string {
  if (type === 'application/json') return utf8(JSON.stringify(value) ?? '');
  if (type === 'text/plain') return utf8(String(value));
  const fields = Object.entries(Object(value)).map(([name, field]): [string, string] => {
    const text = String(field);
    return [name, (text.length === 1 && known[name]?.[0]) || text];
  });
  return new URLSearchParams(fields).toString();
}

function bytesOf({ method, path, headers, body }: Drawn, closes: boolean): string {
  const fields = [
    ['host', 'a'],
    ...headers,
    ...(body === undefined ? [] : [['content-length', String(body.length)]]),
    ...(closes ? [['connection', 'close']] : []),
  ];
  return `${method} ${path} HTTP/1.1\r\n${fields.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${body ?? ''}`;
}

const given = (values: Record<string, string | undefined>): [string, string][] =>
  Object.entries(values).filter((entry): entry is [string, string] => entry[1] !== undefined);
