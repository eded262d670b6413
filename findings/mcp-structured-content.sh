#!/usr/bin/env bash
# @modelcontextprotocol/server 2.4.0: a member beyond the output schema passes McpServer's check and fails in its own Client.
#
# McpServer validates structuredContent with zod, which lets unknown members through, but lists a JSON Schema with
# `additionalProperties: false`, which Client enforces once it has listed the tools. The call has run by then, and its result
# is lost in an error: for a tool that buys something, the money is spent. A test without Client does not see it.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund @modelcontextprotocol/{server,client}@2.4.0 zod@4.6.7
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { Client, InMemoryTransport } from '@modelcontextprotocol/client';
import { McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';

const server = new McpServer({ name: 'shop', version: '1.0.0' });
let calls = 0;
server.registerTool('buy', { outputSchema: z.object({ price: z.string() }) }, async () => {
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
assert.match(listed, /must NOT have additional properties/);
assert.equal(calls, 2);
JS
node run.mjs
