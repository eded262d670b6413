import { UntrustedError } from './errors.ts';

/** What an answer's JSON has to have, as far as a client uses it. `amount` is a whole number of micro-USD, 0 or more. */
export type Shape =
  | 'string'
  | 'number'
  | 'boolean'
  | 'amount'
  | readonly [Shape]
  | { readonly [member: string]: Shape };

/** The value, once it has the shape. @throws UntrustedError naming the place that has not */
export function shaped<Value>(value: Value, shape: Shape): Value {
  const fault = misfit(value, shape, '');
  if (fault === undefined) return value;
  throw new UntrustedError('malformed', `The service's answer can't be used: ${fault}.`);
}

/** The first place that has not the shape, and what it is not. */
function misfit(value: unknown, shape: Shape, place: string): string | undefined {
  if (shape === 'amount')
    return Number.isSafeInteger(value) && Number(value) >= 0 ? undefined : `${place} is no amount`;
  if (typeof shape === 'string') return typeof value === shape ? undefined : `${place} is no ${shape}`;
  const isList = Array.isArray(shape);
  const isOfKind = typeof value === 'object' && value !== null && Array.isArray(value) === isList;
  if (!isOfKind) return `${place || 'its JSON'} is no ${isList ? 'list' : 'object'}`;
  const members = isList ? Object.keys(value).map((index) => [index, shape[0]] as const) : Object.entries(shape);
  for (const [name, of] of members) {
    const fault = misfit((value as Record<string, unknown>)[name], of, place ? `${place}.${name}` : name);
    if (fault !== undefined) return fault;
  }
  return undefined;
}
