/** A speech recognizer understands the real voice: each speaker, and each format that the bridge makes of it. */
import OpenAI from 'openai';
import { test } from 'tap';
import { FORMATS } from '../../src/callers/bridge/audio/formats.ts';
import { startBridge } from '../../src/callers/bridge/bridge.ts';
import { cardCredits, Speechgate } from '../../src/callers/client/index.ts';
import { VOICES } from '../../src/sandbox/voice/flite.ts';
import { startVoiceServer } from '../../src/sandbox/voice/voice-server.ts';
import { startGateway } from '../../test/support/gateway.ts';
import { hear, withoutRecognizer } from './hearing.ts';

const SENTENCE = 'The quick brown fox jumps over the lazy dog.';
const WORDS = SENTENCE.toLowerCase().replace('.', '').split(' ');

test('a speech recognizer understands most voices, and all formats', { skip: withoutRecognizer }, async (t) => {
  const server = await startVoiceServer({ port: 0 });
  t.teardown(() => server.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: server.baseUrl, SPEECH_TIMEOUT_MS: '60000' });
  const client = new Speechgate({ baseUrl: gateway.url, pay: cardCredits(await gateway.fund(500)), timeoutMs: 0 });
  const bridge = await startBridge({ client, budget: undefined, flow: 'card', port: 0, token: null });
  t.teardown(() => bridge.close(1_000));
  const { speech } = new OpenAI({ baseURL: bridge.url, apiKey: 'anything', maxRetries: 0 }).audio;
  const isUnderstood = async (voice: string, format: keyof typeof FORMATS): Promise<boolean> => {
    const response = await speech.create({ model: 'tts-1', voice, input: SENTENCE, response_format: format });
    const heard = await hear(new Uint8Array(await response.arrayBuffer()));
    console.error(`${voice}, ${format}: ${heard.join(' ')}`);
    return WORDS.filter((word) => heard.includes(word)).length >= 6;
  };

  for (const format of Object.keys(FORMATS) as (keyof typeof FORMATS)[]) {
    if (format !== 'pcm') t.ok(await isUnderstood('alloy', format), format);
  }
  const understood: string[] = [];
  for (const voice of VOICES) if (await isUnderstood(voice, 'mp3')) understood.push(voice);
  t.ok(understood.length >= 7, `only ${understood.join(', ')}`);
});
