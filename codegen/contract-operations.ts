import {
  type Contract,
  isJson,
  type Media,
  type Operation,
  type Parameter,
  type Response,
  type Schema,
} from './model.ts';
import { key, literal } from './print.ts';

const GENERAL = `/** The most general result, to which each operation's own is assignable. */
export interface OperationResult {
  status: number;
  /** Media type of the body, where the contract declares several for the status. */
  type?: string;
  headers?: Record<string, string | number | bigint | boolean | undefined>;
  body?: unknown;
}
`;

const AUDIO = `/** A binary body: whole, or as it is being produced. */
export type AudioBody = Uint8Array | Readable;
`;

/** `top-up` → `topUp`. */
export function tagKey(tag: string): string {
  return tag.replaceAll(/-(\w)/g, (_match, letter: string) => letter.toUpperCase());
}

/**
 * `operations.ts`: an interface per tag with a method per operation. An operation can only answer with a status, header,
 * body and error code that the contract declares for it. Its context is what it may know of a request beyond that.
 */
export function generateOperations(contract: Contract): string {
  const printer = new Printer();
  const requests = contract.operations.map((operation) => printer.request(operation));
  const results = contract.operations.map((operation) => printer.results(operation));
  const [first = [], ...others] = results;
  const everywhere = first.filter((result) => others.every((other) => other.includes(result)));
  const interfaces = contract.tags.map(({ name, description }) => {
    const methods = contract.operations.filter(({ tag }) => tag === name).map(method);
    const doc = description === undefined ? '' : `${docs(description)}\n`;
    return `${doc}export interface ${pascal(tagKey(name))}Operations<Context> {\n${methods.join('\n')}}\n`;
  });
  const codes = new Set(
    [...contract.operations.flatMap(({ responses }) => responses), ...contract.edgeResponses].flatMap(
      ({ errorCodes }) => errorCodes,
    ),
  );
  const sections = [
    printer.imports(),
    ...(printer.hasAudio ? [AUDIO] : []),
    ...interfaces,
    credentialChecks(contract),
    GENERAL,
    `/** Every error code that the contract declares. */\nexport type DeclaredErrorCode =${union([...codes].sort().map(literal))};\n`,
    `/** What every operation may answer. */\nexport type EveryResult =${union(everywhere)};\n`,
    ...contract.operations.map(({ id }, index) => {
      const own = (results[index] ?? []).filter((result) => !everywhere.includes(result));
      return `${requests[index]}export type ${pascal(id)}Result =${union([...own, 'EveryResult'])};\n`;
    }),
  ];
  return sections.join('\n');
}

/** Whether the edge does not count a request of the operation if its credential verifies. */
export const isCredentialChecked = ({ rateLimits }: Operation): boolean => rateLimits.edge === 'unless-verified';

function credentialChecks({ operations }: Contract): string {
  const members = operations
    .filter(isCredentialChecked)
    .map(({ id }) => `  ${id}(request: ${pascal(id)}Request, context: Context): Promise<boolean>;\n`);
  return `/** Whether the credential of a request verifies, by operation; asked of clients beyond the edge's limit. */
export interface CredentialChecks<Context> {\n${members.join('')}}\n`;
}

function method({ id, method, path, summary }: Operation): string {
  const name = pascal(id);
  return `  ${docs(`${method} ${path} — ${summary}`)}
  ${id}(request: ${name}Request, context: Context): Promise<${name}Result>;
`;
}

/** Prints the types of requests and results, and remembers which names they need. */
class Printer {
  readonly #schemas = new Set<string>();
  #paths = false;
  #audio = false;

  get hasAudio(): boolean {
    return this.#audio;
  }

  imports(): string {
    const types = [...this.#schemas].sort();
    if (this.#paths) types.push('operations');
    const own =
      types.length === 0 ? '' : `import type {\n${types.map((type) => `  ${type},\n`).join('')}} from './types.ts';\n`;
    const stream = this.#audio ? `import type { Readable } from 'node:stream';\n` : '';
    return `${stream}${own}`;
  }

  request(operation: Operation): string {
    const groups: string[] = [];
    for (const [group, place] of [
      ['params', 'path'],
      ['query', 'query'],
      ['headers', 'header'],
    ] as const) {
      const members = operation.parameters.filter((parameter) => parameter.in === place);
      if (members.length > 0) groups.push(`  ${group}: {\n${members.map(member).join('')}  };\n`);
    }
    const { body } = operation;
    if (body !== undefined) {
      const base = `operations['${operation.id}']['requestBody']`;
      const path = (media: Media) => `${body.required ? base : `NonNullable<${base}>`}['content']['${media.type}']`;
      const types = body.content.map((media) => this.#value(media, path(media)));
      const values =
        types.length === 1
          ? types
          : body.content.map((media, index) => `{ type: ${literal(media.type)}; value: ${types[index]} }`);
      groups.push(`  body: ${[...values, ...(body.required ? [] : ['undefined'])].join(' | ')};\n`);
    }
    const name = `${pascal(operation.id)}Request`;
    if (groups.length === 0) return `export type ${name} = Record<never, never>;\n\n`;
    return `export interface ${name} {\n${groups.join('')}}\n\n`;
  }

  results(operation: Operation): string[] {
    return operation.responses.flatMap((response) => this.#responses(operation.id, response));
  }

  /** The results for one status: media types that carry the same type share one. */
  #responses(id: string, response: Response): string[] {
    const headers = response.headers.filter(({ setByEdge }) => !setByEdge);
    const fields = headers.map(({ name, required, schema }) => {
      return `${key(name)}${required ? '' : '?'}: ${scalarType(schema)}`;
    });
    const optional = headers.some(({ required }) => required) ? '' : '?';
    const start = [
      `status: ${response.status}`,
      ...(fields.length > 0 ? [`headers${optional}: ${object(fields, '      ')}`] : []),
    ];
    if (response.content.length === 0) return [object(start, '    ')];
    const byBody = new Map<string, string[]>();
    for (const media of response.content) {
      const path = `operations['${id}']['responses'][${response.status}]['content']['${media.type}']`;
      const body = this.#value(media, path);
      byBody.set(body, [...(byBody.get(body) ?? []), media.type]);
    }
    return [...byBody].map(([body, types]) => {
      const type = response.content.length > 1 ? [`type: ${types.map(literal).join(' | ')}`] : [];
      return object([...start, ...type, `body: ${body}`], '    ');
    });
  }

  #value(media: Media, path: string): string {
    if (media.schema.format === 'binary' || media.type.startsWith('audio/')) {
      this.#audio = true;
      return 'AudioBody';
    }
    if (!isJson(media.type) && media.schema.type === 'string') return 'string';
    if (media.name !== undefined) {
      this.#schemas.add(media.name);
      return media.name;
    }
    this.#paths = true;
    return path;
  }
}

function member({ name, required, description, schema }: Parameter): string {
  const doc = description === undefined ? '' : `    ${docs(description)}\n`;
  return `${doc}    ${key(name)}${required ? '' : '?'}: ${scalarType(schema)};\n`;
}

function scalarType(schema: Schema): string {
  if (schema.enum !== undefined) return schema.enum.map((value) => literal(value)).join(' | ');
  if (schema.type === 'integer' && schema.format === 'int64') return 'bigint';
  return schema.type === 'integer' ? 'number' : (schema.type ?? 'unknown');
}

function union(members: string[]): string {
  if (members.length === 0) return ' never';
  return members.map((type) => `\n  | ${type}`).join('');
}

/** An object type, on one line where it fits. */
function object(members: string[], indent: string): string {
  const line = `{ ${members.join('; ')} }`;
  if (indent.length + line.length <= 110 && !line.includes('\n')) return line;
  return `{\n${members.map((member) => `${indent}  ${member};\n`).join('')}${indent}}`;
}

function docs(text: string): string {
  return `/** ${text.trim().replaceAll(/\s+/g, ' ').replaceAll('*/', '*\\/')} */`;
}

export function pascal(name: string): string {
  return name.charAt(0).toUpperCase() + name.slice(1);
}
