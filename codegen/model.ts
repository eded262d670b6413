import type { RateLimitTerms } from './rate-limit-terms.ts';

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
  rateLimits: RateLimitTerms;
}

export interface Contract {
  document: Record<string, unknown>;
  tags: { name: string; description?: string }[];
  operations: Operation[];
  /** `x-edge-headers`: headers of every response. */
  edgeHeaders: Header[];
  /** `x-edge-responses`: answers that belong to no operation. */
  edgeResponses: Response[];
}

/** Whether a media type carries JSON. */
export function isJson(mediaType: string): boolean {
  return mediaType === 'application/json' || mediaType.endsWith('+json');
}
