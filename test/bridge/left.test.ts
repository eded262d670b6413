/** Programs that leave: the bridge reads no more of an answer than can still be asked for. */
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { test } from 'tap';
import type { AudioFormat } from '../../src/bridge/audio/formats.ts';
import { Purchases } from '../../src/budget/purchases.ts';
import type { Receipt } from '../../src/client/speech.ts';
import { streamedSpeech } from '../../src/client/speech-of.ts';
import { HELLO, HELLO_MICRO_USD, openBridge } from '../support/bridge.ts';
import { silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

for (const format of ['mp3', 'pcm', 'wav'] satisfies AudioFormat[]) {
  test(`once a program has left, no more of its ${format} is read, and it is charged`, async (t) => {
    const service = endless();
    let onBought = () => {};
    const isBought = new Promise<void>((resolve) => {
      onBought = resolve;
    });
    const read = async () => {
      onBought();
      return { leftMicroUsd: null };
    };
    const { origin, calls, balance } = await openBridge(t, {
      client: { fetch: service.fetch },
      // It is read between the purchase and its delivery.
      bridge: { budget: { read, concludeLost: async () => {} } },
    });
    const asked = request(`${origin}/v1/audio/speech`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
    });
    asked.on('error', () => {});
    asked.end(JSON.stringify({ model: 'tts-1', voice: 'alloy', input: HELLO, response_format: format }));
    await isBought;
    asked.destroy();
    await service.isCancelled;
    await until(() => calls.length === 1);
    assert.deepEqual([calls[0]?.end, calls[0]?.chargedMicroUsd], ['left', HELLO_MICRO_USD]);
    assert.equal(await balance(), 1_000_000n - HELLO_MICRO_USD);
  });
}

test('what is held for a program that left is read no further once nobody can ask for it', async () => {
  const service = endless();
  const receipt = { chargedMicroUsd: HELLO_MICRO_USD } as Receipt;
  const speak = async () => streamedSpeech(service.body(), 'audio/mpeg', receipt);
  const purchases = new Purchases({ speak, resume: speak, conclude: async () => undefined } as never, false);
  const gone = new AbortController();
  const bought = purchases.buy({ text: HELLO }, gone.signal);
  gone.abort();
  await service.isRead;
  purchases.release();
  await service.isCancelled;
  assert.equal((await bought)?.receipt.chargedMicroUsd, HELLO_MICRO_USD);
});

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
  return { fetch: send, body, isRead, isCancelled };
}
