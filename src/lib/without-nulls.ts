/** Parses JSON in which members that are null count as absent, since many programs write them. Items of lists stay. */
export function parseWithoutNulls(json: string): unknown {
  // A reviver makes parsing five times slower.
  return json.includes('null') ? JSON.parse(json, withoutNull) : JSON.parse(json);
}

function withoutNull(this: unknown, _name: string, value: unknown): unknown {
  return value === null && !Array.isArray(this) ? undefined : value;
}
