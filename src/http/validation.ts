import type { ErrorObject } from 'ajv';
import type { ErrorCode } from './structured-error.ts';

export type Location = 'path' | 'query' | 'header' | 'body';

interface ViolatedSchema {
  type?: string | string[];
  enum?: unknown[];
  properties?: Record<string, ViolatedSchema>;
  'x-text'?: { minLength: number; maxLength?: number };
  'x-error-code'?: ErrorCode | Record<string, ErrorCode>;
  'x-error-hint'?: string;
  [keyword: string]: unknown;
}

const BOUNDS = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'minLength', 'maxLength'];
const STATED = [...BOUNDS, 'pattern', 'format'];
const COMPOSED = new Set(['anyOf', 'oneOf', 'allOf', 'not', 'if']);

/** Reports the field and rule from a generated validator's errors; never repeats the value (R8). */
export function violation(
  errors: readonly ErrorObject[],
  location: Location,
): { code: ErrorCode; message: string; details: Record<string, string | number | string[]> } {
  const { error, missing } = decisive(errors);
  const parent = (error.parentSchema ?? {}) as ViolatedSchema;
  const schema = missing.length > 0 ? (parent.properties?.[missing[0] as string] ?? {}) : parent;
  const field = fieldName(error.instancePath, missing, location);
  const hint = schema['x-error-hint'];

  if (location !== 'body' && error.keyword === 'type' && Array.isArray(error.data)) {
    const details = { field, location, rule: 'once' };
    return { code: 'INVALID_REQUEST', message: `${field} must be sent once. You were not charged.`, details };
  }

  const rule = error.keyword === 'x-text' ? (error.params.rule as string) : error.keyword;
  const stated = schema['x-error-code'];
  const code = typeof stated === 'string' ? stated : stated?.[rule];
  const message =
    missing.length > 0 ? `${missing.join(' or ')} is required` : `${field} must be ${wanted(schema, rule)}`;
  return {
    code: code ?? 'INVALID_REQUEST',
    message: `${message}. ${hint === undefined ? '' : `${hint} `}You were not charged.`,
    details: { field, location, rule, ...limits(schema), ...(hint !== undefined && { hint }) },
  };
}

/** Each alternative of anyOf or oneOf adds errors: picks the deepest, and rather a wrong member than a missing one. */
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
  const stated = STATED.filter((keyword) => bounds[keyword] !== undefined);
  return {
    ...Object.fromEntries(stated.map((keyword) => [keyword, bounds[keyword] as string | number])),
    ...(schema.enum !== undefined && { allowed: schema.enum.map(String) }),
  };
}

function wanted(schema: ViolatedSchema, rule: string): string {
  if (rule === 'wellFormed') return 'Unicode text without U+0000 and without unpaired surrogates';
  if (schema.enum !== undefined) return `one of ${schema.enum.map(String).join(', ')}`;
  const type = [schema.type].flat().find((name) => name !== 'null');
  if (type === 'string') return string(schema);
  if (type === 'number' || type === 'integer') {
    const kind = type === 'number' ? 'a number' : 'a whole number';
    return `${kind}${range(schema.minimum, schema.maximum)}${exclusive(schema)}`;
  }
  if (type === 'object') {
    return rule === 'additionalProperties'
      ? 'an object with only the members that GET /openapi.json names'
      : 'an object';
  }
  if (type === 'boolean') return 'true or false';
  return type === 'array' ? 'a list' : 'as GET /openapi.json describes it';
}

function string(schema: ViolatedSchema): string {
  const { minLength, maxLength } = { ...schema, ...schema['x-text'] } as { minLength?: number; maxLength?: number };
  const length = range(minLength, maxLength);
  const unit = (maxLength ?? minLength) === 1 ? 'character' : 'characters';
  const counted = schema['x-text'] === undefined ? '' : ' after trimming';
  let form = schema.format ? ` in the format ${schema.format}` : '';
  if (schema.pattern) form = ` that matches ${schema.pattern}`;
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
