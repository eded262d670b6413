import { parse } from 'yaml';

/** A dereferenced OpenAPI 3.0 schema object; only the keywords the compiler reads are named. */
export interface Schema {
  type?: 'string' | 'number' | 'integer' | 'boolean' | 'array' | 'object';
  format?: string;
  nullable?: boolean;
  enum?: unknown[];
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
  allOf?: Schema[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  [keyword: string]: unknown;
}

export interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required: boolean;
  description?: string;
  schema: Schema;
}

/** One representation of a body. `name` is its component schema's, if the contract refers to one. */
export interface Media {
  type: string;
  schema: Schema;
  name?: string;
}

export interface Header {
  name: string;
  required: boolean;
  /** `x-set-by: edge`: the HTTP edge gives it, so no operation does. */
  setByEdge: boolean;
  schema: Schema;
}

export interface Response {
  status: number;
  headers: Header[];
  content: Media[];
  /** Values of `error.code` that the JSON body admits; empty when the body is no structured error. */
  errorCodes: string[];
}

export interface Operation {
  id: string;
  tag: string;
  method: string;
  path: string;
  summary: string;
  parameters: Parameter[];
  body?: { required: boolean; limit?: number; content: Media[] };
  responses: Response[];
  listed?: number;
  noHead: boolean;
  flow?: string;
}

export interface Contract {
  document: Record<string, unknown>;
  tags: { name: string; description?: string }[];
  operations: Operation[];
  /** `x-edge-responses`: answers that belong to no operation. */
  edgeResponses: Response[];
}

/** The contract has mistakes; all of them are listed, one a line. */
export class ContractError extends Error {
  constructor(problems: string[]) {
    super(`The contract has ${problems.length} mistake(s):\n${problems.map((problem) => `  - ${problem}`).join('\n')}`);
  }
}

/** Each known extension, with the member that an object must have beside it to be a place where it is read. */
const EXTENSIONS: Record<string, string[]> = {
  'x-edge-headers': ['openapi'],
  'x-edge-responses': ['openapi'],
  'x-listed': ['operationId'],
  'x-no-head': ['operationId'],
  'x-flow': ['operationId'],
  'x-body-limit': ['content'],
  'x-set-by': ['schema'],
  'x-text': ['type'],
  'x-error-code': ['type', 'allOf', 'anyOf', 'oneOf'],
  'x-error-hint': ['type', 'allOf', 'anyOf', 'oneOf'],
};

/** Members whose keys are chosen by the contract's author, so that a key `x-…` in them is a name and no extension. */
const NAME_MAPS = new Set([
  'properties',
  'headers',
  'schemas',
  'parameters',
  'responses',
  'requestBodies',
  'securitySchemes',
  'paths',
  'content',
  'x-edge-responses',
]);
const DATA = new Set(['example', 'examples', 'default', 'enum', 'x-text', 'x-error-code']);
const METHODS = ['get', 'post', 'put', 'patch', 'delete'];
const SCALARS = new Set(['string', 'number', 'integer', 'boolean']);

/**
 * Reads an OpenAPI 3.0.3 contract into the model that every generator works on: references resolved, path-level
 * parameters merged, header names in lower case.
 * @throws ContractError naming every mistake at once.
 */
export function readContract(yaml: string): Contract {
  const document = parseYaml(yaml);
  const problems: string[] = [];
  if (document.openapi !== '3.0.3') problems.push(`openapi must be 3.0.3`);
  checkExtensions(document, '#', problems);
  const names = new WeakMap<object, string>();
  const resolved = dereference(document, names) as Raw;
  const reader = new Reader(names, problems);
  const operations = reader.operations(resolved.paths ?? {});
  const edgeResponses = reader.responses(resolved['x-edge-responses'] ?? {}, 'x-edge-responses');
  for (const response of edgeResponses) {
    if (response.status >= 400 && response.errorCodes.length === 0) {
      problems.push(`x-edge-responses ${response.status} declares no error code`);
    }
  }
  const tags = (resolved.tags ?? []) as Contract['tags'];
  for (const tag of new Set(operations.map((operation) => operation.tag))) {
    if (tag !== '' && !tags.some(({ name }) => name === tag))
      problems.push(`tag ${tag} is not declared in the list of tags`);
  }
  if (problems.length > 0) throw new ContractError(problems);
  return {
    document,
    tags: tags.filter(({ name }) => operations.some((operation) => operation.tag === name)),
    operations,
    edgeResponses,
  };
}

function parseYaml(yaml: string): Record<string, unknown> {
  try {
    return parse(yaml);
  } catch (error) {
    throw new ContractError([(error as Error).message]);
  }
}

// biome-ignore lint/suspicious/noExplicitAny: the shape of a parsed document is not known before it is checked
type Raw = Record<string, any>;

function checkExtensions(node: unknown, path: string, problems: string[], keysAreNames = false): void {
  if (typeof node !== 'object' || node === null) return;
  for (const [key, value] of Object.entries(node)) {
    const here = `${path}/${key}`;
    if (!keysAreNames && key.startsWith('x-')) {
      const places = EXTENSIONS[key];
      if (places === undefined) {
        problems.push(`${here}: unknown extension; known are ${Object.keys(EXTENSIONS).join(', ')}`);
      } else if (!places.some((place) => place in node) || 'in' in node) {
        problems.push(`${here}: ${key} is only read beside ${places.join(' or ')}, and not in a parameter object`);
      }
    }
    if (keysAreNames || !DATA.has(key)) {
      const namesBelow = !keysAreNames && NAME_MAPS.has(key) && !Array.isArray(value);
      checkExtensions(value, here, problems, namesBelow);
    }
  }
}

/** Replaces every local `$ref` by what it names; `names` learns the names of component schemas. */
function dereference(root: Raw, names: WeakMap<object, string>): unknown {
  const resolved = new Map<string, unknown>();
  const open = new Set<string>();

  function target(ref: string): unknown {
    if (resolved.has(ref)) return resolved.get(ref);
    if (open.has(ref)) throw new ContractError([`${ref} contains itself; recursive schemas are not supported`]);
    let node: unknown = root;
    for (const part of ref.replace(/^#\//, '').split('/')) {
      node = (node as Raw | undefined)?.[part.replaceAll('~1', '/').replaceAll('~0', '~')];
    }
    if (typeof node !== 'object' || node === null) throw new ContractError([`$ref ${ref} names nothing`]);
    open.add(ref);
    const value = visit(node);
    open.delete(ref);
    resolved.set(ref, value);
    const name = /^#\/components\/schemas\/([A-Za-z_]\w*)$/.exec(ref)?.[1];
    if (name !== undefined && !names.has(value as object)) names.set(value as object, name);
    return value;
  }

  function visit(node: unknown): unknown {
    if (typeof node !== 'object' || node === null) return node;
    if (Array.isArray(node)) return node.map(visit);
    if ('$ref' in node && typeof node.$ref === 'string') return target(node.$ref);
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, visit(value)]));
  }

  return visit(root);
}

class Reader {
  constructor(
    private readonly names: WeakMap<object, string>,
    private readonly problems: string[],
  ) {}

  operations(paths: Raw): Operation[] {
    const found: Operation[] = [];
    for (const [path, item] of Object.entries(paths) as [string, Raw][]) {
      for (const method of METHODS) {
        if (item[method] !== undefined) found.push(this.operation(path, method, item[method], item.parameters ?? []));
      }
    }
    this.unique(found, 'operationId', (operation) => operation.id);
    this.unique(found, 'x-listed', (operation) => operation.listed);
    return found;
  }

  private operation(path: string, method: string, raw: Raw, shared: Raw[]): Operation {
    const where = `${method.toUpperCase()} ${path}`;
    const id: string = raw.operationId ?? '';
    if (!/^[a-z]\w*$/.test(id)) this.problems.push(`${where}: operationId must be a camelCase name`);
    const tags: string[] = raw.tags ?? [];
    if (tags.length !== 1 || !/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(tags[0] ?? '')) {
      this.problems.push(`${where}: exactly one tag is required, in the form top-up`);
    }
    const parameters = this.parameters(path, where, shared, raw.parameters ?? []);
    const body = raw.requestBody as Raw | undefined;
    const operation: Operation = {
      id,
      tag: tags[0] ?? '',
      method: method.toUpperCase(),
      path,
      summary: raw.summary ?? '',
      parameters,
      ...(body !== undefined && {
        body: {
          required: body.required === true,
          ...(body['x-body-limit'] !== undefined && { limit: body['x-body-limit'] }),
          content: this.content(body.content, `${where} requestBody`),
        },
      }),
      responses: this.responses(raw.responses ?? {}, where),
      ...(raw['x-listed'] !== undefined && { listed: raw['x-listed'] }),
      noHead: raw['x-no-head'] === true,
      ...(raw['x-flow'] !== undefined && { flow: raw['x-flow'] }),
    };
    this.checkErrorCodes(operation, where);
    return operation;
  }

  private parameters(path: string, where: string, shared: Raw[], own: Raw[]): Parameter[] {
    const same = (a: Raw, b: Raw) => a.in === b.in && a.name === b.name;
    const all = [...shared.filter((parameter) => !own.some((other) => same(parameter, other))), ...own];
    const parameters = all.map((raw): Parameter => {
      const name = raw.in === 'header' ? raw.name.toLowerCase() : raw.name;
      if (!['path', 'query', 'header'].includes(raw.in)) {
        this.problems.push(`${where}: parameter ${name} is in ${raw.in}; only path, query and header are supported`);
      }
      const schema = this.scalar(raw.schema, `${where}: parameter ${name}`);
      return {
        name,
        in: raw.in,
        required: raw.required === true,
        ...(raw.description !== undefined && { description: raw.description }),
        schema,
      };
    });
    this.unique(parameters, `${where}: parameter`, (parameter) => `${parameter.in} ${parameter.name}`);
    const declared = parameters.filter((parameter) => parameter.in === 'path').map((parameter) => parameter.name);
    const inPath = [...path.matchAll(/\{([^}]+)\}/g)].map((match) => match[1]);
    if (declared.sort().join() !== inPath.sort().join()) {
      this.problems.push(`${where}: path parameters declared (${declared}) differ from those in the path (${inPath})`);
    }
    return parameters;
  }

  responses(raw: Raw, where: string): Response[] {
    return Object.entries(raw).map(([status, response]: [string, Raw]) => {
      const here = `${where} ${status}`;
      if (!/^[1-5]\d\d$/.test(status)) {
        this.problems.push(`${here}: a status must be a number; neither default nor ranges, which admit everything`);
      }
      const headers = Object.entries((response.headers ?? {}) as Raw).map(([name, header]): Header => {
        return {
          name: name.toLowerCase(),
          required: header.required === true,
          setByEdge: header['x-set-by'] === 'edge',
          schema: this.scalar(header.schema, `${here}: header ${name}`),
        };
      });
      this.unique(headers, `${here}: header`, (header) => header.name);
      const content = this.content(response.content ?? {}, here);
      const json = content.filter((media) => isJson(media.type));
      if (json.length > 1) this.problems.push(`${here}: more than one JSON media type`);
      return {
        status: Number(status),
        headers,
        content,
        errorCodes: Number(status) < 400 ? [] : json.flatMap((media) => this.errorCodes(media.schema, here)),
      };
    });
  }

  private content(raw: Raw, where: string): Media[] {
    return Object.entries(raw).map(([type, media]: [string, Raw]) => {
      if (media.schema === undefined) this.problems.push(`${where} ${type}: schema is missing`);
      const schema: Schema = media.schema ?? {};
      const name = this.names.get(schema);
      return { type, schema, ...(name !== undefined && { name }) };
    });
  }

  private scalar(schema: Schema | undefined, where: string): Schema {
    if (schema?.type === undefined || !SCALARS.has(schema.type)) {
      this.problems.push(`${where}: schema must have one of the types ${[...SCALARS].join(', ')}`);
    }
    return schema ?? {};
  }

  private errorCodes(schema: Schema, where: string): string[] {
    if (!hasMember(schema, 'error')) return [];
    const codes = admitted(schema, ['error', 'code']);
    if (codes === undefined || codes.length === 0) {
      this.problems.push(`${where}: error.code admits any string; list the codes in an enum`);
    }
    return codes ?? [];
  }

  /** A code that a violation of the request is given must be one that the operation declares. */
  private checkErrorCodes(operation: Operation, where: string): void {
    const declared = new Set(operation.responses.flatMap((response) => response.errorCodes));
    const schemas = [...operation.parameters, ...(operation.body?.content ?? [])].map(({ schema }) => schema);
    for (const code of new Set(schemas.flatMap((schema) => [...codesIn(schema)]))) {
      if (!declared.has(code))
        this.problems.push(`${where}: x-error-code ${code} is declared in none of its responses`);
    }
  }

  private unique<T>(items: T[], what: string, key: (item: T) => string | number | undefined): void {
    const seen = new Set<string | number>();
    for (const item of items) {
      const value = key(item);
      if (value === undefined) continue;
      if (seen.has(value)) this.problems.push(`${what} ${value} is declared twice`);
      seen.add(value);
    }
  }
}

/** Whether a media type carries JSON. */
export function isJson(mediaType: string): boolean {
  return mediaType === 'application/json' || mediaType.endsWith('+json');
}

function parts(schema: Schema): Schema[] {
  return [...(schema.allOf ?? []), ...(schema.anyOf ?? []), ...(schema.oneOf ?? [])];
}

function hasMember(schema: Schema, name: string): boolean {
  return schema.properties?.[name] !== undefined || parts(schema).some((part) => hasMember(part, name));
}

/** The strings that the enums along `path` admit, or undefined if they admit any. */
function admitted(schema: Schema, path: string[]): string[] | undefined {
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

function* codesIn(schema: Schema): Generator<string> {
  const code = schema['x-error-code'];
  if (typeof code === 'string') yield code;
  else if (code !== undefined) yield* Object.values(code as Record<string, string>);
  for (const child of [...Object.values(schema.properties ?? {}), ...parts(schema)]) yield* codesIn(child);
  if (schema.items !== undefined) yield* codesIn(schema.items);
}
