/** For `JSON.parse`: members that are null count as absent, since many programs write them. Items of lists stay. */
export function withoutNulls(this: unknown, _name: string, value: unknown): unknown {
  return value === null && !Array.isArray(this) ? undefined : value;
}
