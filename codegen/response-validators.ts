import { compileValidators, type JsonSchema, textMembers } from './contract-validators.ts';
import { toJsonSchema } from './json-schema.ts';
import { type Contract, isJson, type Media, type Response } from './model.ts';
import { Code, print } from './print.ts';

/** Answers whether data is valid; if not, `errors` says why until the next call. */
export interface ResponseValidator {
  (data: unknown): boolean;
  errors?: unknown[] | null;
}

/** What a declared response may be. */
export interface DeclaredResponse {
  /** Declared headers, in lower case. */
  headerNames: string[];
  /** Validates headers as they were received; converts numbers and booleans in the object it is given. */
  headers: ResponseValidator;
  /** By media type: the validator of JSON and of text, null for audio. */
  content: Record<string, ResponseValidator | null>;
}

export interface DeclaredOperation {
  operationId: string;
  method: string;
  /** As in the contract, with {parameters}. */
  path: string;
  noHead: boolean;
  responses: Record<number, DeclaredResponse>;
}

/** The exports of the module that `generateResponseValidators` writes. */
export interface DeclaredResponses {
  operations: DeclaredOperation[];
  /** Headers of every response. */
  edgeHeaders: DeclaredResponse;
  /** Answers that belong to no operation, by status. */
  edgeResponses: Record<number, DeclaredResponse>;
}

/** A module for tests, with validators of every response that the contract declares. */
export function generateResponseValidators(contract: Contract): string {
  const schemas: Record<string, JsonSchema> = {};
  const add = (schema: JsonSchema): Code => {
    const name = `validator${Object.keys(schemas).length}`;
    schemas[name] = schema;
    return new Code(name);
  };
  const declared = ({ headers, content }: Pick<Response, 'headers' | 'content'>) => ({
    headerNames: headers.map(({ name }) => name),
    headers: add(textMembers(headers)),
    content: Object.fromEntries(
      content.map((media) => [media.type, isText(media) ? add(toJsonSchema(media.schema)) : null]),
    ),
  });
  const byStatus = (responses: Response[]) =>
    Object.fromEntries(responses.map((response) => [response.status, declared(response)]));
  const operations = contract.operations.map(({ id, method, path, noHead, responses }) => {
    return { operationId: id, method, path, noHead, responses: byStatus(responses) };
  });
  const edgeHeaders = declared({ headers: contract.edgeHeaders, content: [] });
  const edgeResponses = byStatus(contract.edgeResponses);
  return `${compileValidators(schemas, false)}
export const operations = ${print(operations)};
export const edgeHeaders = ${print(edgeHeaders)};
export const edgeResponses = ${print(edgeResponses)};
`;
}

function isText({ type, schema }: Media): boolean {
  return schema.format !== 'binary' && (isJson(type) || type.startsWith('text/'));
}
