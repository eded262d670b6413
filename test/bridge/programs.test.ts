/** The requests of programs that speak OpenAI's speech API, each as its source makes it. */
import assert from 'node:assert/strict';
import { test } from 'tap';
import { HELLO_MICRO_USD, openBridge } from '../support/bridge.ts';
import { probe, withoutProbe } from '../support/probed-audio.ts';
import { PROGRAMS } from './recorded-programs.ts';

test('the recorded requests of programs', { skip: withoutProbe }, async (t) => {
  const { origin, calls } = await openBridge(t);
  for (const { program, requests, codec } of PROGRAMS) {
    await t.test(program, async () => {
      for (const { method, path, headers, body } of requests) {
        const before = calls.length;
        const response = await fetch(`${origin}${path}`, {
          method,
          headers,
          ...(body && { body: JSON.stringify(body) }),
        });
        assert.equal(response.status, 200, path);
        if (method === 'GET') continue;
        const audio = Buffer.from(await response.arrayBuffer());
        const probed = await probe(audio, codec === 'mp3' ? 'mp3' : 'wav');
        assert.deepEqual([probed.codec, probed.channels], [codec, 1]);
        assert.ok(Math.abs(probed.seconds - 1) < 0.1, String(probed.seconds));
        assert.equal(calls[before]?.chargedMicroUsd, HELLO_MICRO_USD);
      }
    });
  }

  await t.test('Open WebUI reads id and name of each voice, and the id of each model', async () => {
    const { voices } = (await (await fetch(`${origin}/v1/audio/voices`)).json()) as { voices: object[] };
    assert.deepEqual(voices[0], { id: 'provider-a_alloy', name: 'Alloy', voice: 'alloy' });
    const { models } = (await (await fetch(`${origin}/v1/audio/models`)).json()) as { models: { id: string }[] };
    assert.deepEqual(
      models.map(({ id }) => id),
      ['provider-a/tts-1', 'provider-a/tts-1-hd'],
    );
  });
});
