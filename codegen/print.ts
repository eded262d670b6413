/** A piece of code that is printed as it is. */
export class Code {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** A value as a TypeScript literal with single quotes. */
export function literal(value: unknown): string {
  if (typeof value !== 'string') return JSON.stringify(value);
  return `'${JSON.stringify(value).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`;
}

/** A member's name, quoted where it has to be. */
export function key(name: string): string {
  return /^(?:[A-Za-z_$][\w$]*|\d+)$/.test(name) ? name : literal(name);
}

/** A value as TypeScript, on one line where it fits. */
export function print(value: unknown, indent = ''): string {
  if (value instanceof Code) return value.text;
  if (typeof value !== 'object' || value === null) return literal(value);
  const deeper = `${indent}  `;
  const [open, close] = Array.isArray(value) ? ['[', ']'] : ['{', '}'];
  const items = Array.isArray(value)
    ? value.map((item) => print(item, deeper))
    : Object.entries(value).map(([name, item]) => `${key(name)}: ${print(item, deeper)}`);
  if (items.length === 0) return `${open}${close}`;
  const space = Array.isArray(value) ? '' : ' ';
  const line = `${open}${space}${items.join(', ')}${space}${close}`;
  if (line.length + indent.length <= 100 && !line.includes('\n')) return line;
  return `${open}\n${items.map((item) => `${deeper}${item},\n`).join('')}${indent}${close}`;
}
