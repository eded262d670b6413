import { createHash } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import { parseForm } from './form.ts';
import { Parameters } from './parameters.ts';

/** A path that names one record. */
export interface ById {
  readonly Params: { readonly id: string };
}

export const formText = (request: FastifyRequest) => (typeof request.body === 'string' ? request.body : '');
export const bodyOf = (request: FastifyRequest) => new Parameters(parseForm(formText(request)));
export const queryOf = (request: FastifyRequest) => new Parameters(parseForm(request.raw.url?.split('?', 2)[1] ?? ''));
export const sha256 = (text: string) => createHash('sha256').update(text).digest();
