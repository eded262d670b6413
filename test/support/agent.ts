import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import type { RequestOptions } from '@modelcontextprotocol/sdk/shared/protocol.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import type { Test } from 'tap';
import { SavedPurchases } from '../../src/callers/cli/saved-purchases.ts';
import { createMcpServer, type McpParts } from '../../src/callers/mcp/server.ts';
import { SpeechFolder } from '../../src/callers/mcp/speech-folder.ts';
import { temporaryFolder } from './temporary-folder.ts';

export type CallTool = (
  name: string,
  args?: object,
  options?: RequestOptions,
  // biome-ignore lint/suspicious/noExplicitAny: what came back is what is tested.
) => Promise<{ data: any; text: string; isError: boolean }>;

/** Calls a tool and returns its structured content, its text, and whether it failed. */
export const toolsOf =
  (client: Client): CallTool =>
  async (name, args, options) => {
    const call = { name, ...(args && { arguments: { ...args } }) };
    const { content, structuredContent, isError } = (await client.callTool(call, undefined, options)) as CallToolResult;
    const [first] = content;
    return {
      data: structuredContent,
      text: first?.type === 'text' ? first.text : '',
      isError: isError ?? false,
    };
  };

/** An MCP server of this process with a folder of its own, and the agent that calls it. @param home of saved purchases */
export async function startMcpAgent(t: Test, home: string, parts: Omit<McpParts, 'saved' | 'folder'>) {
  const folder = await temporaryFolder(t);
  const server = createMcpServer({
    ...parts,
    saved: new SavedPurchases(home),
    folder: await SpeechFolder.open(folder),
  });
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  await server.connect(ours);
  const client = new Client({ name: 'agent', version: '1' });
  await client.connect(theirs);
  t.teardown(() => client.close());
  return { client, folder, call: toolsOf(client) };
}
