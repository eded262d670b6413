import { Ajv } from 'ajv';
import standalone from 'ajv/dist/standalone/index.js';
import addFormats from 'ajv-formats';
import { ContractError } from './contract-error.ts';
import { toJsonSchema } from './json-schema.ts';
import { coerce, text } from './keywords.ts';
import { type Contract, isJson, type Operation, type Parameter, type Schema } from './model.ts';

export type JsonSchema = Record<string, unknown>;

const DECLARATIONS = `import type { ErrorObject } from 'ajv';

/** Answers whether \`data\` is valid; if not, \`errors\` says why until the next call. */
export interface Validator {
  (data: unknown): boolean;
  errors?: ErrorObject[] | null;
}
`;

/** Names of an operation's validators in `validators.js`, by what they check. */
export interface ValidatorNames {
  params?: string;
  query?: string;
  headers?: string;
  /** by media type */
  body?: Record<string, string>;
}

/** What the validators of an operation's request are called. */
export function validatorNames(operation: Operation): ValidatorNames {
  const has = (place: string) =>
    operation.parameters.some((parameter) => parameter.in === place && !isAnyText(parameter));
  return {
    ...(has('path') && { params: `${operation.id}Params` }),
    ...(has('query') && { query: `${operation.id}Query` }),
    ...(has('header') && { headers: `${operation.id}Headers` }),
    ...(operation.body !== undefined && {
      body: Object.fromEntries(operation.body.content.map(({ type }) => [type, `${operation.id}${bodyName(type)}`])),
    }),
  };
}

/** A path or header arrives as one text. Only a schema that asks for more can refuse it. */
const isAnyText = ({ in: place, schema: { type, example, ...rules } }: Parameter): boolean =>
  place !== 'query' && type === 'string' && Object.keys(rules).length === 0;

function bodyName(mediaType: string): string {
  if (isJson(mediaType)) return 'JsonBody';
  if (mediaType === 'application/x-www-form-urlencoded') return 'FormBody';
  if (mediaType === 'text/plain') return 'TextBody';
  throw new ContractError([`request bodies of type ${mediaType} are not supported`]);
}

/** `validators.js` and its declarations: one validator for each part of each operation's request. */
export function generateValidators(contract: Contract): { js: string; dts: string } {
  const schemas: Record<string, JsonSchema> = {};
  for (const operation of contract.operations) {
    const names = validatorNames(operation);
    for (const [group, place] of [
      ['params', 'path'],
      ['query', 'query'],
      ['headers', 'header'],
    ] as const) {
      const name = names[group];
      if (name !== undefined) schemas[name] = textMembers(operation.parameters.filter(({ in: at }) => at === place));
    }
    for (const { type, schema } of operation.body?.content ?? []) {
      const name = names.body?.[type] as string;
      schemas[name] = type === 'application/x-www-form-urlencoded' ? form(schema) : toJsonSchema(schema);
    }
  }
  const declared = Object.keys(schemas).map((name) => `export declare const ${name}: Validator;\n`);
  return { js: compileValidators(schemas, true), dts: `${DECLARATIONS}\n${declared.join('')}` };
}

/** An object whose members arrive as strings: declared ones are checked, others ignored (R51). */
export function textMembers(members: { name: string; required: boolean; schema: Schema }[]): JsonSchema {
  const coerced = members.flatMap(({ name, schema }) => {
    if (schema.type === 'number' || schema.type === 'integer') return [[name, 'number']];
    return schema.type === 'boolean' ? [[name, 'boolean']] : [];
  });
  return {
    type: 'object',
    ...(coerced.length > 0 && { coerce: Object.fromEntries(coerced) }),
    required: members.filter(({ required }) => required).map(({ name }) => name),
    properties: Object.fromEntries(members.map(({ name, schema }) => [name, toJsonSchema(schema)])),
  };
}

function form(schema: Schema): JsonSchema {
  if (schema.properties === undefined) throw new ContractError(['a form must declare its fields in properties']);
  const required = new Set(schema.required ?? []);
  return textMembers(
    Object.entries(schema.properties).map(([name, property]) => {
      return { name, required: required.has(name), schema: property };
    }),
  );
}

function add(ajv: Ajv, name: string, schema: JsonSchema): void {
  try {
    ajv.addSchema(schema, name).getSchema(name);
  } catch (error) {
    throw new ContractError([`${name}: ${(error as Error).message}`]);
  }
}

/**
 * Compiles the schemas into one ES module that exports a validator under each one's key; equal schemas share one. With
 * `verbose`, errors hold the violated schema, from which `violation` reads the error code and the limits.
 */
export function compileValidators(schemas: Record<string, JsonSchema>, verbose: boolean): string {
  const ajv = new Ajv({
    strict: true,
    strictRequired: false,
    allowUnionTypes: true,
    verbose,
    code: { source: true, esm: true, lines: true },
  });
  addFormats.default(ajv);
  ajv.addKeyword(text);
  ajv.addKeyword(coerce);
  ajv.addVocabulary(['x-error-code', 'x-error-hint']);
  const first = new Map<string, string>();
  const aliases: string[] = [];
  for (const [name, schema] of Object.entries(schemas)) {
    const json = JSON.stringify(schema);
    const equal = first.get(json);
    if (equal !== undefined) {
      aliases.push(`export const ${name} = ${equal};\n`);
    } else {
      first.set(json, name);
      add(ajv, name, schema);
    }
  }
  const exported = Object.fromEntries([...first.values()].map((name) => [name, name]));
  const code = standalone.default(ajv, exported).replace('"use strict";', '');
  // AJV's ES modules still `require` its run-time helpers.
  return `import { createRequire } from 'node:module';\n\nconst require = createRequire(import.meta.url);\n${code}\n${aliases.join('')}`;
}
