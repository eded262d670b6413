import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import type { McpServer } from '@modelcontextprotocol/server';

/** An agent's side of a server of this process. Closing it closes both. */
export async function connectAgent(server: McpServer): Promise<Client> {
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  await server.connect(ours);
  const agent = new Client({ name: 'agent', version: '1' });
  await agent.connect(theirs);
  return agent;
}
