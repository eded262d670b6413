import type { ErrorObject } from 'ajv';
import type { FastifySchema } from 'fastify';
import fp from 'fastify-plugin';
import type { Route } from '../../contract/routes.ts';
import type { Serialize } from '../../contract/serializers.js';
import type { Validator } from '../../contract/validators.js';
import { failure, RequestRefused } from '../structured-error.ts';
import { type Location, violation } from '../validation.ts';

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

/** Validates and serializes with the functions that codegen compiled from openapi.yaml. */
export const generatedSchemas = fp(async (app) => {
  app.setValidatorCompiler<GeneratedSchema<Validator>>(({ schema }) => schema.compiled);
  app.setSerializerCompiler<GeneratedSchema<Serialize>>(({ schema }) => schema.compiled);
  app.setSchemaErrorFormatter((errors, part) => {
    const { code, message, details } = violation(errors as unknown as ErrorObject[], LOCATIONS[part] as Location);
    return new RequestRefused(failure(code, message, details));
  });
});

/** A route's validators and serializers as Fastify's route option. */
export function schemaOf({ validate: { params, query, headers, body }, responses }: Route): FastifySchema {
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
