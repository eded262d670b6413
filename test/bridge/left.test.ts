/** Programs that leave in the middle of an answer: the bridge reads no more of it. */
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { test } from 'tap';
import type { AudioFormat } from '../../src/bridge/audio/formats.ts';
import { HELLO, HELLO_MICRO_USD, openBridge } from '../support/bridge.ts';
import { silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

for (const format of ['mp3', 'pcm', 'wav'] satisfies AudioFormat[]) {
  test(`once a program has left, no more of its ${format} is read, and it is charged`, async (t) => {
    const service = endless();
    const { origin, calls, balance } = await openBridge(t, { client: { fetch: service.fetch } });
    const asked = request(`${origin}/v1/audio/speech`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
    });
    asked.on('error', () => {});
    asked.end(JSON.stringify({ model: 'tts-1', voice: 'alloy', input: HELLO, response_format: format }));
    await service.isRead;
    asked.destroy();
    await service.isCancelled;
    await until(() => calls.length === 1);
    assert.deepEqual([calls[0]?.end, calls[0]?.chargedMicroUsd], ['left', HELLO_MICRO_USD]);
    assert.equal(await balance(), 1_000_000n - HELLO_MICRO_USD);
  });
}

/** A service whose speech stalls after two seconds of it. */
function endless() {
  let [onRead, onCancel] = [() => {}, () => {}];
  const isRead = new Promise<void>((resolve) => {
    onRead = resolve;
  });
  const isCancelled = new Promise<void>((resolve) => {
    onCancel = resolve;
  });
  const body = () =>
    new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(silentMp3(2_000)),
      pull: () => {
        onRead();
        return new Promise(() => {});
      },
      cancel: onCancel,
    });
  const send: typeof fetch = async (input, init) => {
    const answer = await fetch(input, init);
    if (!answer.headers.get('content-type')?.startsWith('audio/')) return answer;
    await answer.arrayBuffer();
    return new Response(body(), answer);
  };
  return { fetch: send, isRead, isCancelled };
}
