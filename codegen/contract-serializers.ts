import build from 'fast-json-stringify';
import { ContractError } from './contract-error.ts';
import { type Contract, isJson, type Response, type Schema } from './model.ts';

/** How a value is written. Without a type: as JSON.stringify writes it. `integer` may be a bigint. */
export interface Written {
  type?: 'string' | 'number' | 'integer' | 'boolean' | 'array' | 'object';
  nullable?: true;
  properties?: Record<string, Written>;
  required?: string[];
  additionalProperties?: boolean | Written;
  items?: Written;
}

/** Written out by fast-json-stringify for each member that is a string, always the same. */
const TEXT_MEMBER = new RegExp(
  [
    "if \\(typeof (\\w+(?:\\[\\w+\\])?) !== 'string'\\) \\{",
    'if \\(\\1 === null\\) \\{',
    'json \\+= JSON_STR_EMPTY_STRING',
    '\\} else if \\(\\1 instanceof Date\\) \\{',
    'json \\+= JSON_STR_QUOTE \\+ \\1\\.toISOString\\(\\) \\+ JSON_STR_QUOTE',
    '\\} else if \\(\\1 instanceof RegExp\\) \\{',
    'json \\+= asString\\(\\1\\.source\\)',
    '\\} else \\{',
    'json \\+= asString\\(\\1\\.toString\\(\\)\\)',
    '\\}',
    '\\} else \\{',
    'json \\+= asString\\(\\1\\)',
    '\\}',
  ].join('\\s*'),
  'g',
);
/** The last line of what precedes the functions, the same for each schema. */
const END_OF_HEAD = "const JSON_STR_NULL = 'null'\n";

const START = `import Serializer from 'fast-json-stringify/lib/serializer.js';

const serializer = new Serializer();
`;
const TEXT = `
function asText(value) {
  if (typeof value === 'string') return asString(value);
  if (value === null) return JSON_STR_EMPTY_STRING;
  if (value instanceof Date) return JSON_STR_QUOTE + value.toISOString() + JSON_STR_QUOTE;
  return asString(value instanceof RegExp ? value.source : value.toString());
}
`;
const DECLARATIONS = `/** Writes a body as JSON. */
export type Serialize = (body: unknown) => string;

`;

/**
 * What the serializers in `serializers.js` are called, by response; those that are no JSON have none. Responses whose
 * bodies are written alike share one, called after the first.
 */
export function serializerNames({ operations }: Contract): Map<Response, string> {
  const names = new Map<Response, string>();
  const byWriting = new Map<string, string>();
  for (const { id, responses } of operations) {
    for (const response of responses) {
      const media = response.content.find(({ type }) => isJson(type));
      if (media === undefined) continue;
      const writing = JSON.stringify(written(media.schema));
      const shared = `error${response.status}`;
      const isTaken = [...byWriting.values()].includes(shared);
      const own = response.errorCodes.length > 0 && !isTaken ? shared : id + response.status;
      const name = byWriting.get(writing) ?? own;
      byWriting.set(writing, name);
      names.set(response, name);
    }
  }
  return names;
}

/** By default, the code for arrays depends on the Node.js version that generates it. */
const OPTIONS = {
  mode: 'debug',
  largeArrayMechanism: 'json-stringify',
  largeArraySize: Number.MAX_SAFE_INTEGER,
} as const;

/**
 * `serializers.js` and its declarations. A serializer writes the declared members as JSON.stringify would, `integer` of
 * format `int64` also from a bigint, and leaves undeclared members out.
 */
export function generateSerializers(contract: Contract): { js: string; dts: string } {
  const serializers = new Map<string, string>();
  let head = '';
  for (const [response, name] of serializerNames(contract)) {
    const schema = written(response.content.find(({ type }) => isJson(type))?.schema ?? {});
    if (serializers.has(name)) continue;
    if (schema.type === undefined) serializers.set(name, 'JSON.stringify');
    else {
      const built = build(schema as Parameters<typeof build>[0], OPTIONS) as unknown as { code: string };
      const end = built.code.indexOf(END_OF_HEAD) + END_OF_HEAD.length;
      head = built.code.slice(0, end).replace(/^validator\nserializer\n/, '');
      const functions = built.code.slice(end).replaceAll(TEXT_MEMBER, 'json += asText($1)');
      serializers.set(name, `(() => {\n${functions.replaceAll(/\n\s*(?=\n)/g, '').trimEnd()}\n})()`);
    }
  }
  const definitions = [...serializers].map(([name, code]) => `\nexport const ${name} = ${code};\n`);
  const declarations = [...serializers.keys()].map((name) => `export declare const ${name}: Serialize;\n`);
  return {
    js: [START, head.trim().replaceAll(/^ +(?=const)/gm, ''), '\n', TEXT, ...definitions].join(''),
    dts: DECLARATIONS + declarations.join(''),
  };
}

/**
 * Reduces a schema to how its values are written. The parts of allOf and the alternatives of anyOf and oneOf become one
 * object with the members of all, so that none is lost and nothing has to be validated in order to be written.
 */
export function written(schema: Schema): Written {
  const alternatives = [schema.anyOf, schema.oneOf].filter((list) => list !== undefined);
  const parts = [
    own(schema),
    ...(schema.allOf ?? []).map(written),
    ...alternatives.map((list) => list.map(written).reduce(either)),
  ];
  const whole = parts.reduce(both);
  return schema.nullable === true && whole.type !== undefined ? { ...whole, nullable: true } : whole;
}

function own(schema: Schema): Written {
  const properties = schema.properties ?? {};
  const declared = Object.keys(properties).length > 0;
  const composed = schema.allOf !== undefined || schema.anyOf !== undefined || schema.oneOf !== undefined;
  if (declared || typeof schema.additionalProperties === 'object') {
    const { additionalProperties = false } = schema;
    const members = mapValues(properties, written);
    // Anything may stand in it, so that there is nothing to leave out.
    if (additionalProperties === true && !Object.values(members).some(hasBigint)) return {};
    return {
      type: 'object',
      properties: members,
      required: schema.required ?? [],
      additionalProperties:
        typeof additionalProperties === 'object' ? written(additionalProperties) : additionalProperties,
    };
  }
  switch (schema.type) {
    case 'array': {
      const items = written(schema.items ?? {});
      return items.type === undefined ? {} : { type: 'array', items };
    }
    case 'integer':
      return { type: schema.format === 'int64' ? 'integer' : 'number' };
    case 'object':
      return composed || schema.additionalProperties === false ? { type: 'object', properties: {}, required: [] } : {};
    case undefined:
      return {};
    default:
      return { type: schema.type };
  }
}

/** A value that is written both ways: {} says nothing. */
function both(a: Written, b: Written): Written {
  if (a.type === undefined) return b;
  if (b.type === undefined) return a;
  const required = [...new Set([...(a.required ?? []), ...(b.required ?? [])])];
  return combine(a, b, both, required, a.nullable === true && b.nullable === true);
}

/** A value that is written one way or the other: {} admits anything. */
function either(a: Written, b: Written): Written {
  if (a.type !== b.type) {
    if (hasBigint(a) || hasBigint(b))
      throw new ContractError(['int64 is not supported in alternatives of other types']);
    return {};
  }
  const required = a.required?.filter((name) => b.required?.includes(name)) ?? [];
  return combine(a, b, either, required, a.nullable === true || b.nullable === true);
}

function combine(a: Written, b: Written, merge: typeof both, required: string[], nullable: boolean): Written {
  if (a.type !== b.type) throw new ContractError([`allOf joins a value of type ${a.type} with one of type ${b.type}`]);
  const result: Written = { ...a };
  delete result.nullable;
  if (nullable) result.nullable = true;
  if (a.items !== undefined && b.items !== undefined) result.items = merge(a.items, b.items);
  if (a.type === 'object') {
    result.properties = { ...a.properties };
    for (const [name, property] of Object.entries(b.properties ?? {})) {
      const other = a.properties?.[name];
      result.properties[name] = other === undefined ? property : merge(other, property);
    }
    result.required = required;
    result.additionalProperties = a.additionalProperties || b.additionalProperties || false;
  }
  return result;
}

function hasBigint(written: Written): boolean {
  const { additionalProperties, items, properties = {} } = written;
  const parts = [...Object.values(properties), ...(items ? [items] : [])];
  if (typeof additionalProperties === 'object') parts.push(additionalProperties);
  return written.type === 'integer' || parts.some(hasBigint);
}

function mapValues<T, U>(object: Record<string, T>, map: (value: T) => U): Record<string, U> {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, map(value)]));
}
