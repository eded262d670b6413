#!/usr/bin/env bash
# @modelcontextprotocol/sdk 1.32.2: a member beyond the output schema passes McpServer's check and fails in its own Client.
#
# McpServer validates structuredContent with zod, which lets unknown members through, but lists a JSON Schema with
# `additionalProperties: false`, which Client enforces once it has listed the tools. The call has run by then, and its result
# is lost as error -32602: for a tool that buys something, the money is spent. A test without Client does not see it.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund @modelcontextprotocol/sdk@1.32.2 zod@4.1.12
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { z } from 'zod';

const server = new McpServer({ name: 'shop', version: '1.0.0' });
let calls = 0;
server.registerTool('buy', { outputSchema: { price: z.string() } }, async () => {
  calls += 1;
  return { content: [{ type: 'text', text: 'Bought.' }], structuredContent: { price: '1.98', seconds: 3 } };
});
const client = new Client({ name: 'caller', version: '1.0.0' });
const [near, far] = InMemoryTransport.createLinkedPair();
await Promise.all([server.connect(far), client.connect(near)]);

const unlisted = await client.callTool({ name: 'buy' });
const { tools } = await client.listTools();
const listed = await client.callTool({ name: 'buy' }).catch(({ message }) => message);
await client.close();
console.log({ schema: tools[0].outputSchema, unlisted: unlisted.structuredContent, listed, calls });
assert.equal(tools[0].outputSchema.additionalProperties, false);
assert.deepEqual(unlisted.structuredContent, { price: '1.98', seconds: 3 });
assert.match(listed, /-32602.*must NOT have additional properties/);
assert.equal(calls, 2);
JS
node run.mjs
