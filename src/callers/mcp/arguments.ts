import type { StandardSchemaWithJSON } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { type Cleaning, cleanText, TEXT_FORMATS } from '../../lib/clean-text.ts';
import { DECIMAL_USD } from '../../lib/money.ts';
import type { SpeechOrder } from '../client/index.ts';
import { ToolError } from './results.ts';

const NOTHING_BOUGHT = 'Nothing was bought.';
const DECIMAL = /^\d+(\.\d+)?$/;

/** Refuses unknown arguments, so that the agent does not pay for something else than it meant. */
export function toolInput<Shape extends z.ZodRawShape>(tool: string, shape: Shape) {
  const known = Object.keys(shape).join(', ') || 'none';
  const schema = z.strictObject(shape, {
    error: (issue) =>
      issue.code === 'unrecognized_keys'
        ? `The tool ${tool} has no argument ${issue.keys.join(', ')}. Use only: ${known}. ${NOTHING_BOUGHT}`
        : undefined,
  });
  return publishedAsDraft07(schema);
}

export const toolOutput = <Shape extends z.ZodRawShape>(shape: Shape) => publishedAsDraft07(z.object(shape));

/** Many hosts can't compile JSON Schema 2020-12, which the server would publish. */
function publishedAsDraft07<Schema extends z.ZodType>(
  schema: Schema,
): StandardSchemaWithJSON<z.input<Schema>, z.output<Schema>> {
  const { jsonSchema, ...standard } = schema['~standard'];
  const target = 'draft-07';
  return {
    '~standard': {
      ...standard,
      jsonSchema: { input: () => jsonSchema.input({ target }), output: () => jsonSchema.output({ target }) },
    },
  };
}

export const requiredText = (name: string, description: string) =>
  z.preprocess(trimmed, z.string(expects(`${name} must be a string`))).describe(description);

export const text = (name: string, description: string) =>
  optional(z.string(expects(`${name} must be a string`)), trimmed).describe(description);

export function number(name: string, range: { readonly min: number; readonly max: number }, description: string) {
  const error = expects(`${name} must be a number from ${range.min} to ${range.max}`);
  const schema = z.number(error).min(range.min, error).max(range.max, error);
  return optional(schema, (value) => {
    const argument = trimmed(value);
    return typeof argument === 'string' && DECIMAL.test(argument) ? Number(argument) : argument;
  }).describe(description);
}

export const flag = (name: string, description: string) =>
  optional(z.boolean(expects(`${name} must be true or false`)), (value) => {
    const argument = trimmed(value);
    const word = typeof argument === 'string' ? argument.toLowerCase() : argument;
    if (word === 'true') return true;
    return word === 'false' ? false : argument;
  }).describe(description);

function choice<Choice extends string>(name: string, choices: readonly Choice[], description: string) {
  const schema = z.enum(choices, expects(`${name} must be one of ${choices.join(', ')}`));
  return optional(schema, trimmed).describe(description);
}

export function dollars(name: string, description: string) {
  const error = expects(`${name} must be an amount in US dollars with at most six decimals, such as "0.01"`);
  return optional(z.string(error).regex(DECIMAL_USD, error), (value) => {
    const argument = trimmed(value);
    return typeof argument === 'string' || typeof argument === 'number'
      ? String(argument).replace(/^\$\s*/, '')
      : argument;
  }).describe(description);
}

/** Many hosts send null or an empty text for an omitted argument, and text for numbers. */
const optional = <Schema extends z.ZodType>(schema: Schema, read: (value: unknown) => unknown) =>
  z.preprocess(read, schema.optional()).optional();

function trimmed(value: unknown): unknown {
  if (typeof value !== 'string') return value === null ? undefined : value;
  return value.trim() === '' ? undefined : value.trim();
}

const expects = (rule: string) => ({
  error: ({ input }: { readonly input?: unknown }) =>
    input === undefined ? `${rule}. ${NOTHING_BOUGHT}` : `${rule}, not ${displayed(input)}. ${NOTHING_BOUGHT}`,
});

const displayed = (value: unknown): string => (JSON.stringify(value) ?? '').slice(0, 40);

export const ORDER_ARGUMENTS = {
  voice: text('voice', "The id of a voice from list_voices; default: the model's default voice."),
  model: text('model', 'The id of a model from list_voices; default: the default model of the service.'),
  speed: number('speed', { min: 0.5, max: 2 }, 'The speed, from 0.5 (half) to 2 (double); default: 1.'),
  clean: choice('clean', TEXT_FORMATS, 'Speaks only the words of a text in this format, without code; default: off.'),
  emoji: flag('emoji', 'Whether emoji are spoken; default: true.'),
};

interface OrderArguments {
  readonly voice?: string | undefined;
  readonly model?: string | undefined;
  readonly speed?: number | undefined;
  readonly clean?: Cleaning['format'] | undefined;
  readonly emoji?: boolean | undefined;
}

export function orderOf(
  text: string,
  { voice, model, speed, clean = 'off', emoji = true }: OrderArguments,
): SpeechOrder {
  const cleaned = cleanText(text, { format: clean, emoji }).trim();
  if (cleaned === '') {
    throw new ToolError(
      `text has only markup, code or emoji, which clean and emoji remove. Send words to speak. ${NOTHING_BOUGHT}`,
    );
  }
  return {
    text: cleaned,
    ...(voice !== undefined && { voice }),
    ...(model !== undefined && { model }),
    ...(speed !== undefined && speed !== 1 && { speed }),
  };
}
