/** What the bridge makes of the real voice: speech, in every format. */
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { test } from 'tap';
import { FORMATS } from '../../src/callers/bridge/audio/formats.ts';
import { startBridge } from '../../src/callers/bridge/bridge.ts';
import { cardCredits, Speechgate } from '../../src/callers/client/index.ts';
import { startVoiceServer } from '../../src/sandbox/voice/voice-server.ts';
import { startGateway } from '../../test/support/gateway.ts';
import { hear, withoutRecognizer } from '../../test/support/hearing.ts';

test('a speech recognizer understands the audio in every format', { skip: withoutRecognizer }, async (t) => {
  const voice = await startVoiceServer({ port: 0 });
  t.teardown(() => voice.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: voice.baseUrl, SPEECH_TIMEOUT_MS: '60000' });
  const client = new Speechgate({ baseUrl: gateway.url, pay: cardCredits(await gateway.fund(100)), timeoutMs: 0 });
  const bridge = await startBridge({ client, budget: undefined, flow: 'card', port: 0, token: null });
  t.teardown(() => bridge.close(1_000));
  const openai = new OpenAI({ baseURL: bridge.url, apiKey: 'anything', maxRetries: 0 });
  const text = 'The quick brown fox jumps over the lazy dog.';
  const words = text.toLowerCase().replace('.', '').split(' ');
  for (const response_format of Object.keys(FORMATS) as (keyof typeof FORMATS)[]) {
    if (response_format === 'pcm') continue;
    const response = await openai.audio.speech.create({ model: 'tts-1', voice: 'alloy', input: text, response_format });
    const heard = await hear(new Uint8Array(await response.arrayBuffer()));
    const found = words.filter((word) => heard.includes(word)).length;
    t.comment(`${response_format}: ${heard.join(' ')}`);
    assert.ok(found >= 6, `${response_format}: ${heard.join(' ')}`);
  }
});
