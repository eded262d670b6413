import assert from 'node:assert/strict';
import { test } from 'tap';
import { openApi } from '../../src/client/api.ts';
import { SpeechTimeout } from '../../src/client/speech-timeout.ts';
import { startGateway } from '../support/gateway.ts';

/** A timeout that is read from a service whose guide has these limits. */
const reading = (limits: unknown) => {
  let asked = 0;
  const api = openApi('http://service.test', async () => {
    asked += 1;
    return limits === undefined ? new Response('', { status: 503 }) : Response.json({ limits });
  });
  return { timeout: new SpeechTimeout(api), asked: () => asked };
};

test('a client waits 30 s longer than the service, and two minutes at least', async () => {
  const cases: readonly [limits: unknown, ms: number][] = [
    [{ speechTimeoutSeconds: 600 }, 630_000],
    [{ speechTimeoutSeconds: 45 }, 120_000],
    [{ speechTimeoutSeconds: '600' }, 120_000],
    [{ speechTimeoutSeconds: -1 }, 120_000],
    [{ speechTimeoutSeconds: 1e9 }, 120_000],
    [{}, 120_000],
    [undefined, 120_000],
  ];
  for (const [limits, ms] of cases) {
    assert.equal(await reading(limits).timeout.read(undefined), ms, JSON.stringify(limits));
  }
});

test('the service is asked for its timeout once, and again only while it does not tell', async () => {
  const told = reading({ speechTimeoutSeconds: 600 });
  for (let read = 0; read < 3; read += 1) await told.timeout.read(undefined);
  assert.equal(told.asked(), 1);
  const silent = reading(undefined);
  for (let read = 0; read < 2; read += 1) await silent.timeout.read(undefined);
  assert.equal(silent.asked(), 2);
});

test("a client waits longer than its gateway's SPEECH_TIMEOUT_MS", async (t) => {
  const gateway = await startGateway(t, { SPEECH_TIMEOUT_MS: '300500' });
  assert.equal(await new SpeechTimeout(openApi(gateway.url)).read(undefined), 331_000);
});
