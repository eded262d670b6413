import assert from 'node:assert/strict';
import { test } from 'tap';
import { freePort } from '../../src/sandbox/free-port.ts';
import { startCommand } from '../support/child.ts';
import { testDatabase } from '../support/database.ts';
import { send } from '../support/gateway.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { until } from '../support/until.ts';

test('a gateway that shuts down has logged all its requests', async (t) => {
  const { url: DATABASE_URL } = await testDatabase(t);
  const { url, child } = await startGatewayProcess(t, { DATABASE_URL });
  const traces: (string | null)[] = [];
  for (let count = 0; count < 50; count++) {
    const { headers } = await send(url, '/tts/models', { headers: { connection: 'close' } });
    traces.push(headers.get('x-trace-id'));
  }
  assert.equal(await child.stop('SIGTERM'), 0);
  await until(() => child.process.stdout?.readableEnded === true);
  const logged = child
    .output()
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line).traceId)
    .filter((traceId) => traces.includes(traceId));
  assert.deepEqual(logged, traces);
});

test('a gateway serves and shuts down after its log reader has gone', async (t) => {
  const { url: DATABASE_URL } = await testDatabase(t);
  const { url, child } = await startGatewayProcess(t, { DATABASE_URL });
  child.process.stdout?.destroy();
  assert.equal((await send(url, '/tts/models')).status, 200);
  assert.equal(await child.stop('SIGTERM'), 0);
});

test("a gateway serves and shuts down when its log's disk is full", async (t) => {
  const { url: DATABASE_URL } = await testDatabase(t);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const command = 'exec node dist/main.js > /dev/full';
  const child = startCommand(t, ['sh', '-c', command], { env: { DATABASE_URL, PORT: String(port) } });
  await until(async () => (await fetch(url).catch(() => undefined))?.status === 200);
  // Many more lines than are written together.
  for (let count = 0; count < 51; count++) assert.equal((await send(url, '/tts/models')).status, 200);
  assert.equal(await child.stop('SIGTERM'), 0, child.output());
});
