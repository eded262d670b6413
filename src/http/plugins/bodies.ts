import type { FastifyRequest } from 'fastify';
import fp from 'fastify-plugin';
import type { Route } from '../../contract/routes.ts';
import { decodeBody } from '../body.ts';
import { failure, RequestRefused } from '../structured-error.ts';
import { queryOf } from './request-head.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    probeExample?: ProbeExample | undefined;
  }
  interface FastifyRequest {
    /** The body as it arrived: credentials sign its bytes. */
    bytes: Buffer | undefined;
    isBareProbe: boolean;
  }
}

/** The request that a bare probe stands for (R59). */
export interface ProbeExample {
  readonly query: object;
  readonly body: object | undefined;
  readonly unlessHeaders: readonly string[];
}

/** Decodes bodies by their content type before validation (R7). A bare probe becomes the example it stands for (R59). */
export const bodies = fp(async (app) => {
  app.decorateRequest('bytes', undefined);
  app.decorateRequest('isBareProbe', false);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, async (request: FastifyRequest, bytes: Buffer) => {
    request.bytes = bytes;
  });
  app.addHook('preValidation', async (request) => {
    const { contract, probeExample } = request.routeOptions.config;
    if (!contract) return;
    if (probeExample && isBare(request, probeExample)) {
      request.isBareProbe = true;
      request.query = { ...probeExample.query };
      request.body = probeExample.body && { ...probeExample.body };
    } else request.body = readBody(contract, request);
  });
});

function isBare({ url, headers, bytes }: FastifyRequest, { unlessHeaders }: ProbeExample): boolean {
  if (queryOf(url) !== '' || unlessHeaders.some((name) => headers[name] !== undefined)) return false;
  return !bytes || bytes.length === 0 || /^\s*\{\s*\}\s*$/.test(bytes.toString());
}

/** @throws RequestRefused */
function readBody({ consumes, bodyRequired }: Route, { bytes, mediaType }: FastifyRequest): unknown {
  // Fastify chooses the validator by the same media type.
  if (bytes && mediaType !== undefined && consumes.includes(mediaType)) {
    const decoded = decodeBody(mediaType, bytes);
    if (decoded.outcome === 'unreadable') throw new RequestRefused(decoded.failure);
    return decoded.value;
  }
  if (!bodyRequired) return undefined;
  const details = { field: 'body', rule: 'required', allowed: [...consumes] };
  throw new RequestRefused(failure('INVALID_REQUEST', `A body of type ${consumes.join(' or ')} is required.`, details));
}
