type TypeName = 'string' | 'number' | 'bigint' | 'boolean' | 'object' | 'function';

/** Copies the options. A misspelt or invalid cap must not be ignored. @throws TypeError */
export function checkedOptions<Options extends object>(
  options: Options,
  types: Readonly<Record<keyof Options & string, TypeName>>,
): Options {
  const checked: Partial<Options> = {};
  for (const name in options) {
    const type = types[name];
    if (!type) throw new TypeError(`It has no option ${name}.`);
    const value = options[name];
    if (value === undefined) continue;
    if (typeof value !== type || value === null || Number.isNaN(value) || (value as number) < 0)
      throw new TypeError(`${name} must be a ${type}${(value as number) < 0 ? ' from 0' : ''}.`);
    checked[name] = value;
  }
  return checked as Options;
}
