import type { Contract, Operation, Response } from './model.ts';
import { tagKey } from './operations.ts';
import { Code, print } from './print.ts';
import { serializerName } from './serializers.ts';
import { validatorNames } from './validators.ts';

const START = `import type { DeclaredErrorCode, Operations } from './operations.ts';
import * as serialize from './serializers.js';
import * as validate from './validators.js';

/** An operation as the edge serves it. */
export interface Route {
  readonly operationId: string;
  /** Which member of Operations implements it. */
  readonly tag: keyof Operations;
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** In Fastify's syntax. */
  readonly path: string;
  readonly openapiPath: string;
  /** Position in the list of \`GET /\`. */
  readonly listed?: number;
  /** A GET without a HEAD beside it, since it charges or credits (R51). */
  readonly noHead?: true;
  /** The request header that asks the operation to take the request from the edge's limit. */
  readonly edgeExempt?: string;
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
  /** By status, where the body may be JSON. */
  readonly serialize: Readonly<Record<number, serialize.Serialize>>;
  /** Media types by status; none where there is no body. */
  readonly produces: Readonly<Record<number, readonly string[]>>;
  /** Declared error codes by status; none where the body is no structured error. */
  readonly errorCodes: Readonly<Record<number, readonly DeclaredErrorCode[]>>;
}

`;

/** `routes.ts`: the table of operations. */
export function generateRoutes(contract: Contract): string {
  const routes = contract.operations.map(route);
  return `${START}export const routes: readonly Route[] = ${print(routes)};\n`;
}

function route(operation: Operation): object {
  const names = (place: string) => operation.parameters.filter((p) => p.in === place).map(({ name }) => name);
  const validators = validatorNames(operation);
  const { params, query, headers, body } = validators;
  const validator = (name: string) => new Code(`validate.${name}`);
  return {
    operationId: operation.id,
    tag: tagKey(operation.tag),
    method: operation.method,
    path: operation.path.replaceAll(/\{([^}]+)\}/g, ':$1'),
    openapiPath: operation.path,
    ...(operation.listed !== undefined && { listed: operation.listed }),
    ...(operation.noHead && { noHead: true }),
    ...(operation.edgeExempt !== undefined && { edgeExempt: operation.edgeExempt }),
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
    serialize: byStatus(operation.responses, (response) => {
      const name = serializerName(operation.id, response);
      return name === undefined ? undefined : new Code(`serialize.${name}`);
    }),
    produces: byStatus(operation.responses, ({ content }) => content.map(({ type }) => type)),
    errorCodes: byStatus(operation.responses, ({ errorCodes }) => (errorCodes.length > 0 ? errorCodes : undefined)),
  };
}

function byStatus<T>(responses: Response[], value: (response: Response) => T | undefined): Record<number, T> {
  const entries = responses.map((response) => [response.status, value(response)] as const);
  return Object.fromEntries(entries.filter(([, item]) => item !== undefined)) as Record<number, T>;
}
