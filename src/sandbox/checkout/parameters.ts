import { z } from 'zod';
import { ApiError } from './api-error.ts';

type Branch = { [name: string]: string | Branch };

const NAME = /^[^[\]]+(\[[^[\]]*\]){0,7}$/;
const MAX_PARAMETERS = 1000;

/** Parses Stripe's form encoding, in which `a[b][0]=c` nests. An empty value counts as absent. @throws ApiError */
export function readParameters<Schema extends z.ZodType>(schema: Schema, form: string): z.output<Schema> {
  const result = schema.safeParse(parse(form));
  if (result.success) return result.data;
  const [issue] = result.error.issues as [z.core.$ZodIssue];
  const unknown = issue.code === 'unrecognized_keys' ? issue.keys[0] : undefined;
  const [first, ...further] = [...issue.path, ...(unknown === undefined ? [] : [unknown])].map(String);
  const param = [first, ...further.map((step) => `[${step}]`)].join('').slice(0, 200);
  const isMissing = issue.code === 'invalid_type' && issue.message.endsWith('received undefined');
  const code = unknown === undefined ? (isMissing ? 'parameter_missing' : 'parameter_invalid') : 'parameter_unknown';
  throw new ApiError(400, `Invalid ${param}: ${issue.message}.`, { code, param });
}

function parse(form: string): Branch {
  const root: Branch = Object.create(null);
  for (const [count, [name, value]] of [...new URLSearchParams(form)].entries()) {
    const [last = '', ...outer] = name
      .split(/[[\]]+/)
      .filter(Boolean)
      .reverse();
    let branch: string | Branch | undefined = root;
    for (const step of outer.reverse()) {
      if (typeof branch === 'object') branch = branch[step] ??= Object.create(null);
    }
    if (!NAME.test(name) || count >= MAX_PARAMETERS || typeof branch !== 'object' || last in branch) {
      const about = { code: 'parameter_unknown', param: name.slice(0, 100) };
      throw new ApiError(400, 'A parameter is malformed, repeated or unknown. Correct the request.', about);
    }
    if (value !== '') branch[last] = value;
  }
  return root;
}

export const text = (maxLength: number) => z.string().max(maxLength);

export const integer = (min: number, max: number) =>
  z
    .string()
    .regex(/^-?\d{1,15}$/, 'not a whole number')
    .transform(Number)
    .pipe(z.number().min(min).max(max));

export const webUrl = z.url({ protocol: /^https?$/, normalize: false }).max(5000);

export const metadata = z.record(z.string().max(40), text(500)).default({});
