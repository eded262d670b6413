import { isCredentialChecked, pascal, tagKey } from './contract-operations.ts';
import { serializerNames } from './contract-serializers.ts';
import { validatorNames } from './contract-validators.ts';
import type { Contract, Operation, Response } from './model.ts';
import { Code, print } from './print.ts';
import { EDGE_TERMS, WINDOW_KEYS, WINDOW_TERMS } from './rate-limit-terms.ts';

const union = (names: readonly string[]) => names.map((name) => `'${name}'`).join(' | ');

const START = `import * as serialize from './serializers.js';
import * as validate from './validators.js';

/** Which limits count a request (R48). */
export interface RateLimitTerms {
  /** The edge's limit counts every request, or those without a credential that verifies. */
  readonly edge: ${union(EDGE_TERMS)};
  /** The header that shows a credential, where the edge does not count requests whose credential verifies. */
  readonly credential?: string;
  /** The persistent limit: whose bucket, and for what a slot of it is taken. Who has no account, or no valid sig, counts by address. */
  readonly window?: {
    readonly by: ${union(WINDOW_KEYS)};
    readonly when: readonly (${union(WINDOW_TERMS)})[];
  };
}

/** A declared answer. */
export interface RouteResponse {
  /** Media types; none where there is no body. */
  readonly produces: readonly string[];
  /** Where the body may be JSON. */
  readonly serialize?: serialize.Serialize;
  /** Where the body is a structured error. */
  readonly errorCodes?: readonly DeclaredErrorCode[];
}

/** An operation as the edge serves it. */
export interface Route {
  readonly operationId: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** In Fastify's syntax. */
  readonly path: string;
  /** Position in the list of \`GET /\`. */
  readonly listed?: number;
  /** A GET without a HEAD beside it, since it charges or credits (R51). */
  readonly noHead?: true;
  readonly rateLimits: RateLimitTerms;
  /** Declared query parameters. */
  readonly query: readonly string[];
  /** Declared request headers, in lower case. */
  readonly headers: readonly string[];
  /** Media types of the body; empty if there is none. */
  readonly consumes: readonly string[];
  readonly bodyRequired: boolean;
  /** Bytes. */
  readonly bodyLimit?: number;
  /** Validators of what is declared. Those of params, query, headers and forms turn numbers and booleans into such in the object they are given. */
  readonly validate: {
    readonly params?: validate.Validator;
    readonly query?: validate.Validator;
    readonly headers?: validate.Validator;
    readonly body?: Readonly<Record<string, validate.Validator>>;
  };
  /** By status. */
  readonly responses: Readonly<Record<number, RouteResponse>>;
}

/** A route and the operation behind it. Both functions take a request that the route's validators accept. */
export interface ServedRoute<Context> {
  readonly route: Route;
  readonly operation: (request: unknown, context: Context) => Promise<OperationResult>;
  /** Whether the credential verifies; where the edge does not count requests whose credential does. */
  readonly checkCredential?: (request: unknown, context: Context) => Promise<boolean>;
}

`;

const END = `
/** An operation as the contract declares it, for its path and its limits. @throws when there is none of that id */
export function routeOf(operationId: string): Route {
  const route = routes.find((route) => route.operationId === operationId);
  if (!route) throw new Error(\`The contract has no operation \${operationId}.\`);
  return route;
}
`;

/** `routes.ts`: the table of operations. Answers that are alike are printed once, and so are those of every operation. */
export function generateRoutes(contract: Contract): string {
  const shared = new SharedResponses(contract);
  const everywhere = shared.ofEveryOperation();
  const routes = contract.operations.map(
    (operation) => `\nconst ${operation.id}: Route = ${print(route(operation, shared, everywhere))};\n`,
  );
  const sections = [
    imports(contract),
    START,
    ...shared.definitions(),
    `\n/** Answers that every operation may give. */\nconst everywhere = ${print(everywhere)};\n`,
    ...routes,
    `\nexport const routes: readonly Route[] = [${contract.operations.map(({ id }) => `\n  ${id},`).join('')}\n];\n`,
    ...contract.tags.map(({ name }) => servedRoutes(name, contract)),
    END,
  ];
  return sections.join('');
}

function imports({ operations, tags }: Contract): string {
  const names = [
    ...['CredentialChecks', 'DeclaredErrorCode', 'OperationResult'],
    ...operations.map(({ id }) => `${pascal(id)}Request`),
    ...tags.map(({ name }) => `${pascal(tagKey(name))}Operations`),
  ];
  return `import type {\n${names
    .sort()
    .map((name) => `  ${name},\n`)
    .join('')}} from './operations.ts';\n`;
}

/** The function that binds the operations of a tag to their routes, and to their checks of credentials if there are any. */
function servedRoutes(tag: string, { operations }: Contract): string {
  const own = operations.filter((operation) => operation.tag === tag);
  const checked = own.filter(isCredentialChecked).map(({ id }) => id);
  const bound = own.map(({ id }) => {
    const call = (object: string) => `(request, context) => ${object}.${id}(request as ${pascal(id)}Request, context)`;
    const check = checked.includes(id) ? `\n    checkCredential: ${call('checks')},` : '';
    return `  {\n    route: ${id},\n    operation: ${call('operations')},${check}\n  },\n`;
  });
  const checks = checked.length === 0 ? '' : `\n  checks: Pick<CredentialChecks<Context>, ${union(checked)}>,`;
  return `
/** The routes of the tag ${tag}. */
export const ${tagKey(tag)}Routes = <Context>(
  operations: ${pascal(tagKey(tag))}Operations<Context>,${checks}
): ServedRoute<Context>[] => [\n${bound.join('')}];\n`;
}

/** The answers of the contract, each under the name of its schema, or else of the first operation that declares it. */
class SharedResponses {
  readonly #names = new Map<string, string>();
  readonly #of = new Map<Response, Code>();
  readonly #contract: Contract;

  constructor(contract: Contract) {
    this.#contract = contract;
    const serializers = serializerNames(contract);
    for (const { id, responses } of contract.operations) {
      for (const response of responses) {
        const text = print(routeResponse(response, serializers.get(response)));
        const [media, ...more] = response.content;
        const wanted = (more.length === 0 && media?.name) || `${id}${response.status}`;
        const name = this.#names.get(text) ?? this.#unused(wanted);
        this.#names.set(text, name);
        this.#of.set(response, new Code(name));
      }
    }
  }

  of(responses: Response[]): Record<number, Code> {
    return Object.fromEntries(responses.map((response) => [response.status, this.#of.get(response) as Code]));
  }

  ofEveryOperation(): Record<number, Code> {
    const [first, ...others] = this.#contract.operations.map(({ responses }) => this.of(responses));
    const common = Object.entries(first ?? {}).filter(([status, { text }]) =>
      others.every((responses) => responses[Number(status)]?.text === text),
    );
    return Object.fromEntries(common);
  }

  definitions(): string[] {
    return [...this.#names].map(([text, name]) => `const ${name}: RouteResponse = ${text};\n`);
  }

  #unused(wanted: string): string {
    const taken = new Set(this.#names.values());
    const numbered = Array.from({ length: taken.size }, (_, index) => `${wanted}${index + 2}`);
    return [wanted, ...numbered].find((name) => !taken.has(name)) ?? wanted;
  }
}

function routeResponse({ content, errorCodes }: Response, serializer: string | undefined): object {
  return {
    produces: content.map(({ type }) => type),
    ...(serializer !== undefined && { serialize: new Code(`serialize.${serializer}`) }),
    ...(errorCodes.length > 0 && { errorCodes }),
  };
}

function route(operation: Operation, shared: SharedResponses, everywhere: Record<number, Code>): object {
  const names = (place: string) => operation.parameters.filter((p) => p.in === place).map(({ name }) => name);
  const validators = validatorNames(operation);
  const { params, query, headers, body } = validators;
  const validator = (name: string) => new Code(`validate.${name}`);
  return {
    operationId: operation.id,
    method: operation.method,
    path: operation.path.replaceAll(/\{([^}]+)\}/g, ':$1'),
    ...(operation.listed !== undefined && { listed: operation.listed }),
    ...(operation.noHead && { noHead: true }),
    rateLimits: operation.rateLimits,
    query: names('query'),
    headers: names('header'),
    consumes: operation.body?.content.map(({ type }) => type) ?? [],
    bodyRequired: operation.body?.required ?? false,
    ...(operation.body?.limit !== undefined && { bodyLimit: operation.body.limit }),
    validate: {
      ...(params !== undefined && { params: validator(params) }),
      ...(query !== undefined && { query: validator(query) }),
      ...(headers !== undefined && { headers: validator(headers) }),
      ...(body !== undefined && {
        body: Object.fromEntries(Object.entries(body).map(([type, name]) => [type, validator(name)])),
      }),
    },
    responses: new Code(responses(shared.of(operation.responses), everywhere)),
  };
}

/** An object of answers by status, some to a line. */
function responses(own: Record<number, Code>, everywhere: Record<number, Code>): string {
  const others = Object.entries(own).filter(([status]) => everywhere[Number(status)] === undefined);
  const items = ['...everywhere', ...others.map(([status, { text }]) => `${status}: ${text}`)];
  const lines = [''];
  for (const item of items) {
    const line = lines.at(-1) as string;
    if (line.length + item.length > 100) lines.push(`${item}, `);
    else lines[lines.length - 1] = `${line}${item}, `;
  }
  return `{\n${lines.map((line) => `      ${line.trimEnd()}\n`).join('')}    }`;
}
