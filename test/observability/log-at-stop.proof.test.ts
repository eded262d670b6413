import assert from 'node:assert/strict';
import { test } from 'tap';
import { testDatabase } from '../support/database.ts';
import { send } from '../support/gateway.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { until } from '../support/until.ts';

test('a gateway that is told to stop writes the lines of all its requests', async (t) => {
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
