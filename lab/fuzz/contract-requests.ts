import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { readContract } from '../../codegen/contract.ts';
import type { Media, Operation, Parameter, Schema } from '../../codegen/model.ts';
import { projectFile } from '../../test/support/project.ts';
import type { Conversation } from './conversation.ts';

const { operations } = readContract(readFileSync(projectFile('openapi.yaml'), 'utf8'));

/** Existing values, by the name of the parameter or member that takes them. */
export type Known = Readonly<Record<string, readonly string[]>>;

interface Drawn {
  readonly method: string;
  readonly path: string;
  readonly fields: readonly string[];
  /** Bytes as latin1. */
  readonly body: string | undefined;
}

/** One odd value for so many usual ones. */
export const seldom = <T, U>(usualWeight: number, usual: fc.Arbitrary<T>, odd: fc.Arbitrary<U>): fc.Arbitrary<T | U> =>
  fc.oneof({ weight: usualWeight, arbitrary: usual }, { weight: 1, arbitrary: odd });

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
      body: seldom(12, body, oddBody),
      method: seldom(25, fc.constant(operation.method), fc.constantFrom(...METHODS)),
      twist: seldom(25, fc.constant(''), fc.constantFrom(...TWISTS)),
      more: seldom(8, fc.constant(undefined), fc.constantFrom(...MORE_HEADERS)),
    })
    .map(({ params, query, headers, body, method, twist, more }) => {
      const path = operation.path.replaceAll(/\{(\w+)\}/g, (_, name) => encodeURIComponent(params[name] || 'x'));
      const search = new URLSearchParams(given(query)).toString();
      const sendable = given(headers).map(([name, value]) => {
        const text = utf8(value).replaceAll(/[^\t\x20-\x7e\x80-\xff]/g, '?');
        return `${name}: ${text.trim()}`;
      });
      return {
        method,
        path: `${search ? `${path}?${search}` : path}${twist}`.slice(0, 50_000),
        fields: [
          ...sendable.filter(({ length }) => length < 8000),
          ...(body?.type ? [`content-type: ${body.type}`] : []),
          ...(more === undefined ? [] : [more]),
        ],
        body: body?.bytes,
      };
    });
}

const METHODS = ['HEAD', 'PUT', 'OPTIONS', 'DELETE', 'GET', 'POST', 'PATCH'];
/** Suffixes of a request target, sent without encoding. */
const TWISTS = '/ // %2f /.. ? & ?a=1&a=2 &text=a&text=b &model= %zz %ff %00 ;a=b %C3%28'.split(' ');
/** One of a line, or two that belong together. */
const MORE_HEADERS = [
  ...['accept: text/html', 'accept: application/json;q=0, */*;q=x', 'accept-encoding: gzip, br'],
  ...['content-encoding: gzip', 'x-forwarded-for: 192.0.2.1, nonsense', 'cookie: a=b; c', 'if-none-match: *'],
  ...['range: bytes=5-2', 'expect: 100-continue', 'expect: wonders', 'authorization: Bearer x'],
  ...['content-type: text/plain; charset=latin1', 'x-credit-account: a\r\nx-credit-account: b'],
  'origin: https://a.example\r\naccess-control-request-method: POST',
];

const textFor = ({ name, schema }: Parameter, known: Known): fc.Arbitrary<string> =>
  fc.oneof(
    valuesFor(schema).map((value) =>
      (typeof value === 'string' ? value : (JSON.stringify(value) ?? '')).toWellFormed(),
    ),
    ...(known[name] ? [fc.constantFrom(...known[name])] : []),
  );

/** Longest generated text, even if the schema allows more. */
const LONGEST = 60;

const oddText: fc.Arbitrary<string> = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.constantFrom(
    ...['', ' ', 'true', 'null', '0', '-1', '1e9', 'NaN', '%', '../..', '\u0000', '\ud800', '\ufeff', '😀', '\u2028'],
    "'; drop table account; --",
    '{"a":',
    '__proto__',
    'a\r\nx-injected: 1',
  ),
  fc.nat({ max: 6000 }).map((length) => 'a'.repeat(length)),
);

function fitting(schema: Schema): fc.Arbitrary<unknown> {
  const options = [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])];
  if (options.length > 0) return fc.oneof(...options.map(fitting));
  if (schema.allOf) {
    const parts = schema.allOf.filter((part) => part.not === undefined).map(fitting);
    return fc.tuple(...parts).map((values) => Object.assign({}, ...values));
  }
  if (schema.enum) return fc.constantFrom(...schema.enum);
  const examples = schema.example === undefined ? [] : [fc.constant(schema.example)];
  return fc.oneof(...examples, ofType(schema));
}

function ofType(schema: Schema): fc.Arbitrary<unknown> {
  const {
    minimum,
    maximum,
    minLength = 0,
    maxLength = LONGEST,
    pattern,
  } = schema as Record<string, number | undefined>;
  switch (schema.type) {
    case 'string':
      if (typeof pattern === 'string') return fc.stringMatching(new RegExp(pattern), { size: '-1' });
      return fc.string({ minLength, maxLength: Math.min(maxLength, LONGEST) });
    case 'integer':
      return fc.integer({ min: minimum ?? 0, max: maximum ?? 10_000 });
    case 'number':
      return fc.integer({ min: (minimum ?? 0) * 100, max: (maximum ?? 100) * 100 }).map((value) => value / 100);
    case 'boolean':
      return fc.boolean();
    case 'array':
      return fc.array(fitting(schema.items ?? {}), { maxLength: 3 });
    case 'object': {
      const members = Object.entries(schema.properties ?? {}).map(([name, member]) => [name, fitting(member)] as const);
      return fc.record(Object.fromEntries(members), { requiredKeys: (schema.required ?? []) as never[] });
    }
    default:
      return fc.jsonValue();
  }
}

/** Values with one fault: a member removed or added, another type, or a bound exceeded. */
function nearly(schema: Schema): fc.Arbitrary<unknown> {
  const { minimum, maximum, maxLength } = schema as Record<string, number | undefined>;
  const wrong: fc.Arbitrary<unknown>[] = [fc.constantFrom(null, '', [], {}, 0, -1, true, 1e300), oddText];
  if (typeof minimum === 'number') wrong.push(fc.constantFrom(minimum - 1, minimum - 0.001));
  if (typeof maximum === 'number') wrong.push(fc.constantFrom(maximum + 1, maximum + 0.001, 2 ** 53));
  if (typeof maxLength === 'number')
    wrong.push(fc.constant('é'.repeat(maxLength + 1)), fc.constant('x'.repeat(maxLength)));
  const options = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  for (const option of options) if (option.not === undefined) wrong.push(nearly(option));
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    const changed = fc.oneof(nearly(member), fc.constant(undefined));
    wrong.push(fc.tuple(fitting(schema), changed).map(([value, other]) => ({ ...Object(value), [name]: other })));
  }
  if (schema.type === 'object') {
    wrong.push(
      fc
        .tuple(fitting(schema), oddText, fc.jsonValue())
        .map(([value, name, more]) => ({ ...Object(value), [name]: more })),
    );
  }
  return fc.oneof(...wrong);
}

/** Mostly valid, often nearly valid, sometimes arbitrary. */
const valuesFor = (schema: Schema): fc.Arbitrary<unknown> =>
  fc.oneof(
    { weight: 6, arbitrary: fitting(schema) },
    { weight: 3, arbitrary: nearly(schema) },
    { weight: 1, arbitrary: fc.oneof(fc.jsonValue(), oddText) },
  );

interface Body {
  readonly type: string;
  readonly bytes: string;
}

const ODD_TYPES = 'application/json|application/json; charset=utf-16|text/html||a/b; c|text/plain'.split('|');
const ODD_BYTES = '\xff\xfe|{"text":"\xc3\x28"}|\xef\xbb\xbf{"text":"a"}|[[[[[[[[|{"text":"a","text":"b"}'.split('|');
const oddBody: fc.Arbitrary<Body> = fc.record({
  type: fc.constantFrom(...ODD_TYPES),
  bytes: fc.oneof(
    oddText.map(utf8),
    fc.constantFrom(...ODD_BYTES),
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

function bytesOf({ method, path, fields, body }: Drawn, closes: boolean): string {
  const length = body === undefined ? [] : [`content-length: ${body.length}`];
  const all = ['host: a', ...fields, ...length, ...(closes ? ['connection: close'] : [])];
  return `${method} ${path} HTTP/1.1\r\n${all.join('\r\n')}\r\n\r\n${body ?? ''}`;
}

const given = (values: Record<string, string | undefined>): [string, string][] =>
  Object.entries(values).filter((entry): entry is [string, string] => entry[1] !== undefined);
