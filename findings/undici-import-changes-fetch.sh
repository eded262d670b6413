#!/usr/bin/env bash
# undici 7.30.2 on Node 20: to import it changes what Node's own fetch does, in all modules of the process.
#
# It puts an agent of its own where Node's fetch looks for one, unless a first fetch has put Node's there. So the order of
# imports and calls decides which version sends a request, and they differ: a content-length header that the caller has
# set is then refused. Node 24 keeps its own agent.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund undici@7.30.2
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';

const server = createServer((request, response) => request.resume().on('end', () => response.end())).listen(0, '127.0.0.1');
await once(server, 'listening');
const send = () =>
  fetch(`http://127.0.0.1:${server.address().port}`, { method: 'POST', headers: { 'content-length': '5' }, body: 'Hello' }).then(
    ({ status }) => status,
    ({ cause }) => cause.message,
  );

const isFirst = process.argv[2] === 'import first';
const before = isFirst ? undefined : await send();
const { Agent, getGlobalDispatcher } = await import('undici');
const after = await send();
server.close();
console.log(process.version, process.argv[2], { before, after, 'agent is of the package': getGlobalDispatcher() instanceof Agent });
const isReplaced = isFirst && process.version.startsWith('v20.');
assert.equal(getGlobalDispatcher() instanceof Agent, isReplaced);
assert.equal(after, isReplaced ? 'invalid content-length header' : 200);
assert.equal(before, isFirst ? undefined : 200);
JS
node run.mjs 'import first'
node run.mjs 'fetch first'
