import type { Schema } from './model.ts';

type JsonSchema = Record<string, unknown>;

const ANNOTATIONS = new Set([
  'title',
  'description',
  'example',
  'examples',
  'default',
  'deprecated',
  'discriminator',
  'externalDocs',
  'readOnly',
  'writeOnly',
  'xml',
  'nullable',
]);

/** Turns a dereferenced OpenAPI 3.0 schema into the JSON Schema (draft 7) that AJV compiles. */
export function toJsonSchema(schema: Schema): JsonSchema {
  const result: JsonSchema = {};
  for (const [keyword, value] of Object.entries(schema)) {
    if (!ANNOTATIONS.has(keyword)) result[keyword] = convert(keyword, value);
  }
  inferType(result);
  convertBounds(result);
  if (schema['x-text'] !== undefined) convertText(result);
  return schema.nullable === true ? admitNull(result) : result;
}

function convert(keyword: string, value: unknown): unknown {
  switch (keyword) {
    case 'properties':
      return Object.fromEntries(
        Object.entries(value as Record<string, Schema>).map(([name, property]) => [name, toJsonSchema(property)]),
      );
    case 'allOf':
    case 'anyOf':
    case 'oneOf':
      return (value as Schema[]).map(toJsonSchema);
    case 'items':
    case 'not':
      return toJsonSchema(value as Schema);
    case 'additionalProperties':
      return typeof value === 'object' ? toJsonSchema(value as Schema) : value;
    default:
      return value;
  }
}

/** The strict mode wants a type beside each keyword that applies to one; the contract may leave the obvious one out. */
function inferType(schema: JsonSchema): void {
  if (schema.type === undefined && (schema.properties !== undefined || schema.additionalProperties !== undefined)) {
    schema.type = 'object';
  }
}

/** OpenAPI 3.0 has boolean `exclusiveMinimum` and `exclusiveMaximum` beside the bound, JSON Schema has the bound itself. */
function convertBounds(schema: JsonSchema): void {
  for (const [exclusive, bound] of [
    ['exclusiveMinimum', 'minimum'],
    ['exclusiveMaximum', 'maximum'],
  ] as const) {
    if (schema[exclusive] === true) {
      schema[exclusive] = schema[bound];
      delete schema[bound];
    } else if (schema[exclusive] === false) {
      delete schema[exclusive];
    }
  }
}

/** Moves the lengths of text into `x-text`, which counts them its own way (R1). */
function convertText(schema: JsonSchema): void {
  const { cap } = schema['x-text'] as { cap?: string };
  schema['x-text'] = {
    minLength: schema.minLength ?? 0,
    ...(schema.maxLength !== undefined && cap === undefined && { maxLength: schema.maxLength }),
  };
  delete schema.minLength;
  delete schema.maxLength;
}

function admitNull(schema: JsonSchema): JsonSchema {
  const composed = schema.allOf !== undefined || schema.anyOf !== undefined || schema.oneOf !== undefined;
  if (composed) return { anyOf: [schema, { type: 'null' }] };
  if (schema.type === undefined) return schema;
  return {
    ...schema,
    type: [schema.type, 'null'],
    ...(Array.isArray(schema.enum) && !schema.enum.includes(null) && { enum: [...schema.enum, null] }),
  };
}
