import type { FastifyRequest } from 'fastify';
import fp from 'fastify-plugin';
import type { Route } from '../../contract/routes.ts';
import { type ErrorCode, type Failure, failure, RequestRefused } from '../structured-error.ts';
import { isPercentEncoded, queryOf } from './request-head.ts';

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

/**
 * Decodes bodies by their content type before validation (R7): JSON in UTF-8, where the contract names no other type (R72).
 * A bare probe becomes the example it stands for (R59).
 */
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
  const message = `The body is missing. Send one of type ${consumes.join(' or ')}. You were not charged.`;
  throw new RequestRefused(failure('INVALID_REQUEST', message, details));
}

export interface Unreadable {
  readonly outcome: 'unreadable';
  readonly failure: Failure<ErrorCode>;
}

const unreadable = (answer: Failure<ErrorCode>): Unreadable => ({ outcome: 'unreadable', failure: answer });

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** Decodes JSON to its value, a form to an object (lists for repeated fields), and text to a string (R2). */
export function decodeBody(
  type: string,
  bytes: Buffer,
): { readonly outcome: 'decoded'; readonly value: unknown } | Unreadable {
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    const code = type === 'application/json' ? 'INVALID_JSON' : 'INVALID_REQUEST';
    return unreadable(
      failure(code, 'The body is not valid UTF-8. Send it in UTF-8. You were not charged.', {
        field: 'body',
        rule: 'utf-8',
      }),
    );
  }
  if (type === 'application/json') {
    try {
      return { outcome: 'decoded', value: JSON.parse(text) };
    } catch {
      return unreadable(
        failure('INVALID_JSON', 'The body is not valid JSON. Correct it and send it again. You were not charged.', {
          field: 'body',
          rule: 'json',
        }),
      );
    }
  }
  if (type === 'application/x-www-form-urlencoded') {
    if (!isPercentEncoded(text)) {
      const details = { field: 'body', rule: 'percent-encoding' };
      return unreadable(
        failure(
          'INVALID_REQUEST',
          'The form is not valid percent-encoded UTF-8. Encode each value from its plain text, as encodeURIComponent does. You were not charged.',
          details,
        ),
      );
    }
    const form = new URLSearchParams(text);
    const once = ([name, value]: [string, string]) => [name, form.getAll(name).length > 1 ? form.getAll(name) : value];
    return { outcome: 'decoded', value: Object.fromEntries([...form].map(once)) };
  }
  if (!isSpeechRequest(text)) return { outcome: 'decoded', value: text };
  return unreadable(
    failure(
      'INVALID_REQUEST',
      'content-type is text/plain, but the body is JSON. Send it with content-type: application/json. You were not charged.',
      { field: 'content-type', rule: 'enum', allowed: ['application/json'] },
    ),
  );
}

const TEXT_MEMBERS = ['text', 'input'];

/** Detects a JSON request sent as text/plain, as `fetch` does with a string body (R70). */
function isSpeechRequest(text: string): boolean {
  const trimmed = text.trim();
  if (!trimmed.startsWith('{')) return false;
  try {
    const value = JSON.parse(trimmed);
    return TEXT_MEMBERS.some((name) => typeof value[name] === 'string');
  } catch {
    return false;
  }
}
