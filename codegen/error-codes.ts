import type { Schema } from './model.ts';

function parts(schema: Schema): Schema[] {
  return [...(schema.allOf ?? []), ...(schema.anyOf ?? []), ...(schema.oneOf ?? [])];
}

/** Whether the object, or any part of it, declares the member. */
export function hasMember(schema: Schema, name: string): boolean {
  return schema.properties?.[name] !== undefined || parts(schema).some((part) => hasMember(part, name));
}

/** The strings that the enums along `path` admit, or undefined if they admit any. */
export function admitted(schema: Schema, path: string[]): string[] | undefined {
  const [name, ...rest] = path;
  const member = name === undefined ? undefined : schema.properties?.[name];
  const own = name === undefined ? (schema.enum as string[] | undefined) : member && admitted(member, rest);
  const all = [own, ...(schema.allOf ?? []).map((part) => admitted(part, path))];
  for (const alternatives of [schema.anyOf, schema.oneOf]) {
    const each = alternatives?.map((part) => admitted(part, path));
    if (each?.every((codes) => codes !== undefined)) all.push([...new Set(each.flat())]);
  }
  const restricted = all.filter((codes) => codes !== undefined);
  return restricted.length === 0 ? undefined : restricted.reduce((a, b) => a.filter((code) => b.includes(code)));
}

/** Every `x-error-code` in a schema. */
export function* codesIn(schema: Schema): Generator<string> {
  const code = schema['x-error-code'];
  if (typeof code === 'string') yield code;
  else if (code !== undefined) yield* Object.values(code as Record<string, string>);
  for (const child of [...Object.values(schema.properties ?? {}), ...parts(schema)]) yield* codesIn(child);
  if (schema.items !== undefined) yield* codesIn(schema.items);
}
