import { readFileSync } from 'node:fs';
import swagger, { type StaticDocumentSpec } from '@fastify/swagger';
import type { FastifyInstance } from 'fastify';
import { parse } from 'yaml';
import type { OpenApiDocument } from '../contract/types.ts';

const CONTRACT = new URL('../../openapi.yaml', import.meta.url);

/** Once in a process: it takes longer than the rest of a start. */
let contract: StaticDocumentSpec['document'] | undefined;

/**
 * Reads the contract at the start, `servers` naming this deployment; `server.swagger()` is the same document from then on.
 * @throws if openapi.yaml is missing or no YAML.
 */
export async function readContractDocument(server: FastifyInstance, baseUrl: string): Promise<OpenApiDocument> {
  contract ??= parse(readFileSync(CONTRACT, 'utf8')) as StaticDocumentSpec['document'];
  const document = { ...contract, servers: [{ url: baseUrl }] };
  await server.register(swagger, { mode: 'static', specification: { document } });
  return server.swagger() as OpenApiDocument;
}
