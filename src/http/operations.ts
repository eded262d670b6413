import type { ErrorObject } from 'ajv';
import type { FastifyBaseLogger, FastifyPluginAsync, FastifyReply, FastifyRequest, FastifySchema } from 'fastify';
import type { Catalog } from '../config/catalog.ts';
import type { Route, ServedRoute } from '../contract/routes.ts';
import type { Serialize } from '../contract/serializers.js';
import type { PaymentOutcome } from '../contract/types.ts';
import type { Validator } from '../contract/validators.js';
import type { RunningWork } from '../lib/running-work.ts';
import type { RequestContext, ResponseEvents } from '../payments/speak.ts';
import type { ProbeExample } from './plugins/bodies.ts';
import type { RateLimits } from './plugins/rate-limits.ts';
import { pathAndQuery } from './plugins/request-head.ts';
import type { RequestFacts } from './plugins/request-log.ts';
import { prefersHtml, resetResponse, sendResult } from './reply.ts';
import { failure, RequestRefused } from './structured-error.ts';
import { type Location, violation } from './validation.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    contract?: Route;
  }
  interface FastifyRequest {
    hasBegun: boolean;
  }
  interface FastifyInstance {
    /** Running operations. A stop waits for them. */
    work: RunningWork;
  }
}

export interface OperationsOptions {
  readonly routes: readonly ServedRoute<OperationContext>[];
  /** What a bare request stands for, by operationId; without an entry it is refused. */
  readonly probeExamples?: Readonly<Record<string, ProbeExample>>;
  /** In bytes, by operationId, where the contract's limit is too small for the catalog. */
  readonly bodyLimits?: Readonly<Record<string, number>>;
  /** How long the connection may be silent while an operation runs, if longer than the server's `connectionTimeout`. */
  readonly waitMs?: number;
}

/** JSON may write a character in this many bytes: `\u0000`. */
const MOST_BYTES = 6;
const OTHER_MEMBERS_BYTES = 8192;

/** Of a body with the longest text of the catalog. */
export const bodyLimitOf = ({ models }: Catalog): number =>
  OTHER_MEMBERS_BYTES + MOST_BYTES * Math.max(...models.map(({ maxInputCharacters }) => maxInputCharacters));

/** A schema that is compiled already. Fastify hands instances of own classes to the compilers as they are. */
class GeneratedSchema<Compiled> {
  readonly compiled: Compiled;

  constructor(compiled: Compiled) {
    this.compiled = compiled;
  }
}

const LOCATIONS: Readonly<Record<string, Location>> = {
  params: 'path',
  querystring: 'query',
  headers: 'header',
  body: 'body',
};

/**
 * Serves operations at their routes of the contract, with the functions that codegen compiled from openapi.yaml. HEAD
 * is served beside a GET, unless that is marked `x-no-head` (R51).
 */
export const operations: FastifyPluginAsync<OperationsOptions> = async (
  app,
  { routes, probeExamples, bodyLimits, waitMs },
) => {
  app.setValidatorCompiler<GeneratedSchema<Validator>>(({ schema }) => schema.compiled);
  app.setSerializerCompiler<GeneratedSchema<Serialize>>(({ schema }) => schema.compiled);
  app.setSchemaErrorFormatter((errors, part) => {
    const { code, message, details } = violation(errors as unknown as ErrorObject[], LOCATIONS[part] as Location);
    return new RequestRefused(failure(code, message, details));
  });
  const { connectionTimeout = 0 } = app.initialConfig;
  if (waitMs !== undefined && waitMs > connectionTimeout) {
    app.addHook('preHandler', async ({ raw }) => void raw.setTimeout(waitMs));
    app.addHook('onSend', async ({ raw }) => void raw.setTimeout(connectionTimeout));
  }
  for (const { route, operation, checkCredential } of routes) {
    app.route({
      method: route.method,
      url: route.path,
      config: { contract: route, probeExample: probeExamples?.[route.operationId] },
      schema: schemaOf(route),
      exposeHeadRoute: route.method === 'GET' && !route.noHead,
      ...(route.bodyLimit && { bodyLimit: Math.max(route.bodyLimit, bodyLimits?.[route.operationId] ?? 0) }),
      ...(checkCredential && {
        preHandler: async (request: FastifyRequest, reply: FastifyReply) => {
          const isValid = () => checkCredential(requestOf(route, request), new OperationContext(request, reply));
          const refusal = await request.rateLimits.requireCredential(isValid);
          if (refusal) throw new RequestRefused(refusal);
        },
      }),
      handler: (request, reply) => app.work.add(request.record.waitFor(answer(request, reply))),
    });

    async function answer(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
      request.hasBegun = true;
      const result = await operation(requestOf(route, request), new OperationContext(request, reply));
      return sendResult(route, result, reply);
    }
  }
};

/** The request as the generated interfaces have it: where several media types are read, the body is with its own. */
function requestOf({ consumes }: Route, { params, query, headers, body, mediaType }: FastifyRequest): object {
  return { params, query, headers, body: consumes.length > 1 ? { type: mediaType, value: body } : body };
}

/** A route's validators and serializers as Fastify's route option. */
function schemaOf({ validate: { params, query, headers, body }, responses }: Route): FastifySchema {
  const content = Object.entries(body ?? {}).map(([type, validator]) => [
    type,
    { schema: new GeneratedSchema(validator) },
  ]);
  const response = Object.entries(responses).flatMap(([status, { serialize }]) =>
    serialize ? [[status, new GeneratedSchema(serialize)]] : [],
  );
  return {
    ...(params && { params: new GeneratedSchema(params) }),
    ...(query && { querystring: new GeneratedSchema(query) }),
    ...(headers && { headers: new GeneratedSchema(headers) }),
    ...(body && { body: { content: Object.fromEntries(content) } }),
    response: Object.fromEntries(response),
  };
}

const EMPTY = Buffer.alloc(0);

export class OperationContext implements RequestContext {
  readonly traceId: string;
  readonly method: string;
  readonly url: string;
  readonly bytes: Buffer;
  /** The request was a bare probe: the service supplied its query and body (R59). */
  readonly isBare: boolean;
  readonly log: FastifyBaseLogger;
  readonly rateLimits: RateLimits;
  readonly #request: FastifyRequest;
  readonly #reply: FastifyReply;
  #response: ResponseEvents | undefined;

  constructor(request: FastifyRequest, reply: FastifyReply) {
    this.traceId = request.id;
    this.method = request.method;
    this.url = pathAndQuery(request.url);
    this.bytes = request.bytes ?? EMPTY;
    this.isBare = request.isBareProbe;
    this.log = request.log;
    this.rateLimits = request.rateLimits;
    this.#request = request;
    this.#reply = reply;
  }

  get client(): string {
    return this.#request.client;
  }

  /** What happened to the money so far. Every error response shows it as `details.payment` (R64). */
  get payment(): PaymentOutcome | undefined {
    return this.#request.payment;
  }

  set payment(outcome: PaymentOutcome | undefined) {
    this.#request.payment = outcome;
  }

  get response(): ResponseEvents {
    this.#response ??= this.#eventsOf(this.#reply);
    return this.#response;
  }

  #eventsOf({ raw, request }: FastifyReply): ResponseEvents {
    return {
      onEnd(listener) {
        let hasEnded = false;
        const end = () => {
          if (hasEnded) return;
          hasEnded = true;
          // An error response is never charged, even if it is sent whole.
          listener(raw.statusCode >= 400);
        };
        raw.once('finish', end);
        raw.once('close', end);
        if (raw.writableFinished || raw.destroyed) end();
      },
      get isClosed() {
        return raw.destroyed;
      },
      abort() {
        if (raw.writableFinished) return;
        request.record.markAborted();
        resetResponse(raw);
      },
    };
  }

  hasHeader(name: string): boolean {
    return this.#request.headers[name] !== undefined;
  }

  prefersHtml(): boolean {
    return prefersHtml(this.#request);
  }

  /** Whether a browser loads a page, which no script can pretend. */
  get isPageLoad(): boolean {
    return this.#request.headers['sec-fetch-dest'] === 'document';
  }

  addLogFields(fields: RequestFacts): void {
    this.#request.record.addLogFields(fields);
  }

  /** Makes the request's log line, and a stop of the process, wait for the final charge, which the line shows. */
  followCharge(charged: Promise<boolean>, priceMicroUsd: bigint): void {
    const { record, server } = this.#request;
    const noted = charged.then((isCharged) => this.addLogFields({ chargedMicroUsd: isCharged ? priceMicroUsd : 0n }));
    server.work
      .add(record.waitFor(noted))
      .catch((err) =>
        this.log.error(
          { err },
          'failed to capture or void a hold; unless it was captured, it is voided when it expires, and its payer is not charged. Read err for the cause',
        ),
      );
  }

  /** Sets a header for any status, as the contract marks it with `x-set-by: edge`. */
  setHeader(name: string, value: string): void {
    this.#reply.header(name, value);
  }
}
