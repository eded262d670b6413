import fc from 'fast-check';
import type { Schema } from '../../codegen/model.ts';

/** Longest generated text, even if the schema allows more. */
const LONGEST = 60;

export const oddText: fc.Arbitrary<string> = fc.oneof(
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
export const valuesFor = (schema: Schema): fc.Arbitrary<unknown> =>
  fc.oneof(
    { weight: 6, arbitrary: fitting(schema) },
    { weight: 3, arbitrary: nearly(schema) },
    { weight: 1, arbitrary: fc.oneof(fc.jsonValue(), oddText) },
  );
