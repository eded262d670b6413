import { fileURLToPath } from 'node:url';
import swagger from '@fastify/swagger';
import Fastify from 'fastify';
import type { OpenApiDocument } from '../contract/types.ts';

const CONTRACT = fileURLToPath(new URL('../../openapi.yaml', import.meta.url));

/** Read once in a process, on a server that never listens: it takes longer than the rest of a start. */
let contract: Promise<OpenApiDocument> | undefined;

/**
 * The contract as openapi.yaml has it, `servers` naming this deployment.
 * @throws if openapi.yaml is missing or no YAML.
 */
export async function contractDocument(baseUrl: string): Promise<OpenApiDocument> {
  contract ??= readContract();
  return { ...(await contract), servers: [{ url: baseUrl }] };
}

async function readContract(): Promise<OpenApiDocument> {
  const server = Fastify();
  await server.register(swagger, { mode: 'static', specification: { path: CONTRACT, baseDir: '' } });
  return server.swagger() as OpenApiDocument;
}
