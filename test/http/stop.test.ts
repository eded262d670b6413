import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, type IncomingMessage, request } from 'node:http';
import { test } from 'tap';
import { startGateway } from '../support/gateway.ts';
import { mp3, startStubUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

test('a client that keeps its connection does not hold up a stop once it has its answer', async (t) => {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url });
  const account = await gateway.fund(500);
  let isClosed = false;
  upstream.mode = (received, response) => {
    void gateway.app.close().then(() => {
      isClosed = true;
    });
    mp3()(received, response);
  };
  const agent = new Agent({ keepAlive: true });
  t.teardown(() => agent.destroy());
  const outgoing = request(`${gateway.url}/tts?text=hello`, { agent, headers: { 'x-credit-account': account } });
  outgoing.end();
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
  incoming.resume();
  await once(incoming, 'end');
  assert.equal(incoming.statusCode, 200);
  // The server itself would keep the connection for 75 seconds.
  await until(() => isClosed);
});
