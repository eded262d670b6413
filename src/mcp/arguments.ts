import * as z from 'zod';
import { DECIMAL_USD } from '../lib/money.ts';

const NOTHING_BOUGHT = 'Nothing was bought.';
const DECIMAL = /^\d+(\.\d+)?$/;

/** The arguments of a tool. One that it does not have is refused: what it asks for would be left out of what is paid. */
export function toolInput<Shape extends z.ZodRawShape>(tool: string, shape: Shape) {
  const known = Object.keys(shape).join(', ') || 'none';
  return z.strictObject(shape, {
    error: (issue) =>
      issue.code === 'unrecognized_keys'
        ? `${tool} has no argument ${issue.keys.join(', ')}. It takes ${known}. ${NOTHING_BOUGHT}`
        : undefined,
  });
}

export const requiredText = (name: string, description: string) =>
  z.preprocess(trimmed, z.string(takes(`${name} takes text`))).describe(description);

export const text = (name: string, description: string) =>
  optional(z.string(takes(`${name} takes text`)), trimmed).describe(description);

export function number(name: string, range: { readonly min: number; readonly max: number }, description: string) {
  const error = takes(`${name} takes a number from ${range.min} to ${range.max}`);
  const schema = z.number(error).min(range.min, error).max(range.max, error);
  return optional(schema, (value) => {
    const given = trimmed(value);
    return typeof given === 'string' && DECIMAL.test(given) ? Number(given) : given;
  }).describe(description);
}

export const flag = (name: string, description: string) =>
  optional(z.boolean(takes(`${name} takes true or false`)), (value) => {
    const given = trimmed(value);
    return FLAGS.get(typeof given === 'string' ? given.toLowerCase() : given) ?? given;
  }).describe(description);

const FLAGS: ReadonlyMap<unknown, boolean> = new Map([
  ['true', true],
  ['false', false],
]);

/** US dollars, as text. */
export function dollars(name: string, description: string) {
  const error = takes(`${name} takes US dollars with at most six decimals, such as "0.01"`);
  return optional(z.string(error).regex(DECIMAL_USD, error), (value) => {
    const given = trimmed(value);
    return typeof given === 'string' || typeof given === 'number' ? String(given).replace(/^\$\s*/, '') : given;
  }).describe(description);
}

/** Many hosts send null or an empty text for what is left out, and text for numbers. */
const optional = <Schema extends z.ZodType>(schema: Schema, read: (value: unknown) => unknown) =>
  z.preprocess(read, schema.optional()).optional();

function trimmed(value: unknown): unknown {
  if (typeof value !== 'string') return value === null ? undefined : value;
  return value.trim() === '' ? undefined : value.trim();
}

const takes = (rule: string) => ({
  error: ({ input }: { readonly input?: unknown }) =>
    input === undefined ? `${rule}. ${NOTHING_BOUGHT}` : `${rule}; it is ${shown(input)}. ${NOTHING_BOUGHT}`,
});

const MAX_SHOWN = 40;

const shown = (value: unknown): string => (JSON.stringify(value) ?? '').slice(0, MAX_SHOWN);
