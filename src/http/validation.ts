import type { ErrorObject } from 'ajv';
import type { ErrorCode } from './structured-error.ts';

export type Location = 'path' | 'query' | 'header' | 'body';

/** A broken rule of the contract, as the caller is told of it. */
export interface Violation {
  code: ErrorCode;
  message: string;
  details: {
    field: string;
    location: Location;
    /** The violated keyword of the schema; `wellFormed` for a lone surrogate or U+0000, `once` for a repetition. */
    rule: string;
    [limit: string]: string | number | string[];
  };
}

/** What the validators' verbose errors tell about the violated schema. */
interface ViolatedSchema {
  type?: string | string[];
  enum?: unknown[];
  properties?: Record<string, ViolatedSchema>;
  'x-text'?: { minLength: number; maxLength?: number };
  'x-error-code'?: ErrorCode | Record<string, ErrorCode>;
  'x-error-hint'?: string;
  [keyword: string]: unknown;
}

const LIMITS = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'minLength', 'maxLength'];
const FORMS = ['pattern', 'format'];
const COMPOSED = new Set(['anyOf', 'oneOf', 'allOf', 'not', 'if']);

/**
 * Tells a caller which field broke which rule and what would be right, from the errors of a generated request
 * validator. The code is the schema's `x-error-code`, one for all rules or one per keyword, else INVALID_REQUEST (R8).
 * Neither message nor details repeat the value.
 */
export function violation(errors: readonly ErrorObject[], location: Location): Violation {
  const { error, missing } = decisive(errors);
  const parent = (error.parentSchema ?? {}) as ViolatedSchema;
  const schema = missing.length > 0 ? (parent.properties?.[missing[0] as string] ?? {}) : parent;
  const field = fieldName(error.instancePath, missing, location);
  const hint = schema['x-error-hint'];

  if (location !== 'body' && error.keyword === 'type' && Array.isArray(error.data)) {
    const message = `${field} must be given once`;
    return { code: 'INVALID_REQUEST', message, details: { field, location, rule: 'once' } };
  }

  const rule = error.keyword === 'x-text' ? (error.params.rule as string) : error.keyword;
  const stated = schema['x-error-code'];
  const code = typeof stated === 'string' ? stated : stated?.[rule];
  const message =
    missing.length > 0 ? `${missing.join(' or ')} is required` : `${field} must be ${wanted(schema, rule)}`;
  return {
    code: code ?? 'INVALID_REQUEST',
    message: hint === undefined ? message : `${message}. ${hint}`,
    details: { field, location, rule, ...limits(schema), ...(hint !== undefined && { hint }) },
  };
}

/**
 * The error to report. Each alternative of an anyOf or oneOf adds its own, and the one that got furthest says most:
 * deeper in the value, and rather a wrong member than a missing one. `missing` has the members any of which was missed.
 */
function decisive(errors: readonly ErrorObject[]): { error: ErrorObject; missing: string[] } {
  const own = errors.filter(({ keyword }) => !COMPOSED.has(keyword));
  const candidates = own.length > 0 ? own : errors;
  const depth = (error: ErrorObject) =>
    2 * error.instancePath.split('/').length - (error.keyword === 'required' ? 1 : 0);
  const error = candidates.reduce((best, next) => (depth(next) > depth(best) ? next : best));
  if (error.keyword !== 'required') return { error, missing: [] };
  const same = candidates.filter((other) => other.keyword === 'required' && other.instancePath === error.instancePath);
  return { error, missing: [...new Set(same.map(({ params }) => params.missingProperty as string))] };
}

function fieldName(instancePath: string, missing: string[], location: Location): string {
  const parts = instancePath.split('/').slice(1);
  if (missing[0] !== undefined) parts.push(missing[0]);
  return parts.length > 0 ? parts.join('.') : location;
}

function limits(schema: ViolatedSchema): Record<string, string | number | string[]> {
  const bounds = { ...schema, ...schema['x-text'] } as Record<string, unknown>;
  const stated = [...LIMITS, ...FORMS].filter((keyword) => bounds[keyword] !== undefined);
  return {
    ...Object.fromEntries(stated.map((keyword) => [keyword, bounds[keyword] as string | number])),
    ...(schema.enum !== undefined && { allowed: schema.enum.map(String) }),
  };
}

/** What the schema asks for, in words that follow "must be". */
function wanted(schema: ViolatedSchema, rule: string): string {
  if (rule === 'wellFormed') return 'well-formed text: no lone surrogate, no U+0000';
  if (schema.enum !== undefined) return `one of ${schema.enum.map(String).join(', ')}`;
  const type = [schema.type].flat().find((name) => name !== 'null');
  switch (type) {
    case 'string':
      return string(schema);
    case 'number':
      return `a number${range(schema.minimum, schema.maximum)}${exclusive(schema)}`;
    case 'integer':
      return `a whole number${range(schema.minimum, schema.maximum)}${exclusive(schema)}`;
    case 'boolean':
      return 'true or false';
    case 'object':
      return rule === 'additionalProperties' ? 'an object without other members than the declared ones' : 'an object';
    case 'array':
      return 'a list';
    default:
      return 'as the contract says';
  }
}

function string(schema: ViolatedSchema): string {
  const { minLength, maxLength } = { ...schema, ...schema['x-text'] } as { minLength?: number; maxLength?: number };
  const length = range(minLength, maxLength);
  const unit = (maxLength ?? minLength) === 1 ? 'character' : 'characters';
  const counted = schema['x-text'] === undefined ? '' : ' after trimming';
  const form = schema.pattern
    ? ` that matches ${schema.pattern}`
    : schema.format
      ? ` in the format ${schema.format}`
      : '';
  return `a string${length === '' ? '' : `${length.replace(/^ from/, ' of')} ${unit}${counted}`}${form}`;
}

function range(least: unknown, most: unknown): string {
  if (least !== undefined && most !== undefined) return ` from ${least} to ${most}`;
  if (least !== undefined) return ` of at least ${least}`;
  return most === undefined ? '' : ` of at most ${most}`;
}

function exclusive({ exclusiveMinimum, exclusiveMaximum }: ViolatedSchema): string {
  const above = exclusiveMinimum === undefined ? '' : ` above ${exclusiveMinimum}`;
  return exclusiveMaximum === undefined ? above : `${above} below ${exclusiveMaximum}`;
}
