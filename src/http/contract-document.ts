import { fileURLToPath } from 'node:url';
import swagger from '@fastify/swagger';
import type { FastifyInstance } from 'fastify';
import type { OpenApiDocument } from '../contract/types.ts';

const CONTRACT = fileURLToPath(new URL('../../openapi.yaml', import.meta.url));

/**
 * Reads the contract at the start, `servers` naming this deployment; `server.swagger()` is the same document from then on.
 * @throws if openapi.yaml is missing or no YAML.
 */
export async function readContractDocument(server: FastifyInstance, baseUrl: string): Promise<OpenApiDocument> {
  await server.register(swagger, {
    mode: 'static',
    specification: {
      path: CONTRACT,
      baseDir: '',
      postProcessor: (document) => ({ ...document, servers: [{ url: baseUrl }] }),
    },
  });
  return server.swagger() as OpenApiDocument;
}
