import { mkdir, readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const { mcpServers } = JSON.parse(await readFile(new URL('mcp.json', import.meta.url), 'utf8'));
const { command, args, env } = mcpServers.speechgate;
// What mcp.json leaves to be filled in: where the package and the folder are.
args[0] = fileURLToPath(new URL('dist/speechgate.js', import.meta.resolve('speechgate/package.json')));
args[3] = resolve('speech');
await mkdir(args[3], { recursive: true });
const agent = new Client({ name: 'example-agent', version: '1.0.0' });
await agent.connect(new StdioClientTransport({ command, args, env: { ...process.env, ...env } }));
const { tools } = await agent.listTools();
console.log(tools.map(({ name }) => name).join(' '));
const spoken = await agent.callTool({ name: 'speak', arguments: { text: 'Hello world, bought by an agent.' } });
console.log(spoken.content[0].text);
await agent.close();
