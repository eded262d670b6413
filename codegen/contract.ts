import { parse } from 'yaml';
import { ContractError } from './contract-error.ts';
import { admitted, codesIn, hasMember } from './error-codes.ts';
import { checkExtensions } from './extensions.ts';
import {
  type Contract,
  type Header,
  isJson,
  type Media,
  type Operation,
  type Parameter,
  type Response,
  type Schema,
} from './model.ts';
import { readRateLimits } from './rate-limit-terms.ts';
import { dereference, type Raw } from './references.ts';

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
  const edgeHeaders = reader.headers(resolved['x-edge-headers']?.headers ?? {}, 'x-edge-headers');
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
    edgeHeaders,
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

class Reader {
  readonly #names: WeakMap<object, string>;
  readonly #problems: string[];

  constructor(names: WeakMap<object, string>, problems: string[]) {
    this.#names = names;
    this.#problems = problems;
  }

  operations(paths: Raw): Operation[] {
    const found: Operation[] = [];
    for (const [path, item] of Object.entries(paths) as [string, Raw][]) {
      for (const method of METHODS) {
        if (item[method] !== undefined) found.push(this.#operation(path, method, item[method], item.parameters ?? []));
      }
    }
    this.#unique(found, 'operationId', (operation) => operation.id);
    this.#unique(found, 'x-listed', (operation) => operation.listed);
    return found;
  }

  #operation(path: string, method: string, raw: Raw, shared: Raw[]): Operation {
    const where = `${method.toUpperCase()} ${path}`;
    const id: string = raw.operationId ?? '';
    if (!/^[a-z]\w*$/.test(id)) this.#problems.push(`${where}: operationId must be a camelCase name`);
    const tags: string[] = raw.tags ?? [];
    if (tags.length !== 1 || !/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(tags[0] ?? '')) {
      this.#problems.push(`${where}: exactly one tag is required, in the form top-up`);
    }
    const parameters = this.#parameters(path, where, shared, raw.parameters ?? []);
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
          content: this.#content(body.content, `${where} requestBody`),
        },
      }),
      responses: this.responses(raw.responses ?? {}, where),
      ...(raw['x-listed'] !== undefined && { listed: raw['x-listed'] }),
      noHead: raw['x-no-head'] === true,
      rateLimits: readRateLimits(raw['x-rate-limits'], parameters, where, this.#problems),
    };
    this.#checkErrorCodes(operation, where);
    return operation;
  }

  #parameters(path: string, where: string, shared: Raw[], own: Raw[]): Parameter[] {
    const same = (a: Raw, b: Raw) => a.in === b.in && a.name === b.name;
    const all = [...shared.filter((parameter) => !own.some((other) => same(parameter, other))), ...own];
    const parameters = all.map((raw): Parameter => {
      const name = raw.in === 'header' ? raw.name.toLowerCase() : raw.name;
      if (!['path', 'query', 'header'].includes(raw.in)) {
        this.#problems.push(`${where}: parameter ${name} is in ${raw.in}; only path, query and header are supported`);
      }
      const schema = this.#scalar(raw.schema, `${where}: parameter ${name}`);
      return {
        name,
        in: raw.in,
        required: raw.required === true,
        ...(raw.description !== undefined && { description: raw.description }),
        schema,
      };
    });
    this.#unique(parameters, `${where}: parameter`, (parameter) => `${parameter.in} ${parameter.name}`);
    const declared = parameters.filter((parameter) => parameter.in === 'path').map((parameter) => parameter.name);
    const inPath = [...path.matchAll(/\{([^}]+)\}/g)].map((match) => match[1]);
    if (declared.sort().join() !== inPath.sort().join()) {
      this.#problems.push(`${where}: path parameters declared (${declared}) differ from those in the path (${inPath})`);
    }
    return parameters;
  }

  responses(raw: Raw, where: string): Response[] {
    return Object.entries(raw).map(([status, response]: [string, Raw]) => {
      const here = `${where} ${status}`;
      if (!/^[1-5]\d\d$/.test(status)) {
        this.#problems.push(`${here}: a status must be a number; neither default nor ranges, which admit everything`);
      }
      const headers = this.headers(response.headers ?? {}, here);
      const content = this.#content(response.content ?? {}, here);
      const json = content.filter((media) => isJson(media.type));
      if (json.length > 1) this.#problems.push(`${here}: more than one JSON media type`);
      return {
        status: Number(status),
        headers,
        content,
        errorCodes: Number(status) < 400 ? [] : json.flatMap((media) => this.#errorCodes(media.schema, here)),
      };
    });
  }

  headers(raw: Raw, where: string): Header[] {
    const headers = Object.entries(raw).map(([name, header]: [string, Raw]): Header => {
      return {
        name: name.toLowerCase(),
        required: header.required === true,
        setByEdge: header['x-set-by'] === 'edge',
        schema: this.#scalar(header.schema, `${where}: header ${name}`),
      };
    });
    this.#unique(headers, `${where}: header`, (header) => header.name);
    return headers;
  }

  #content(raw: Raw, where: string): Media[] {
    return Object.entries(raw).map(([type, media]: [string, Raw]) => {
      if (media.schema === undefined) this.#problems.push(`${where} ${type}: schema is missing`);
      const schema: Schema = media.schema ?? {};
      const name = this.#names.get(schema);
      return { type, schema, ...(name !== undefined && { name }) };
    });
  }

  #scalar(schema: Schema | undefined, where: string): Schema {
    if (schema?.type === undefined || !SCALARS.has(schema.type)) {
      this.#problems.push(`${where}: schema must have one of the types ${[...SCALARS].join(', ')}`);
    }
    return schema ?? {};
  }

  #errorCodes(schema: Schema, where: string): string[] {
    if (!hasMember(schema, 'error')) return [];
    const codes = admitted(schema, ['error', 'code']);
    if (codes === undefined || codes.length === 0) {
      this.#problems.push(`${where}: error.code admits any string; list the codes in an enum`);
    }
    return codes ?? [];
  }

  /** A code that a violation of the request is given must be one that the operation declares. */
  #checkErrorCodes(operation: Operation, where: string): void {
    const declared = new Set(operation.responses.flatMap((response) => response.errorCodes));
    const schemas = [...operation.parameters, ...(operation.body?.content ?? [])].map(({ schema }) => schema);
    for (const code of new Set(schemas.flatMap((schema) => [...codesIn(schema)]))) {
      if (!declared.has(code))
        this.#problems.push(`${where}: x-error-code ${code} is declared in none of its responses`);
    }
  }

  #unique<T>(items: T[], what: string, key: (item: T) => string | number | undefined): void {
    const seen = new Set<string | number>();
    for (const item of items) {
      const value = key(item);
      if (value === undefined) continue;
      if (seen.has(value)) this.#problems.push(`${what} ${value} is declared twice`);
      seen.add(value);
    }
  }
}
