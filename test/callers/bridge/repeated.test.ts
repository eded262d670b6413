/** Programs that repeat a request, whatever they are told: each call is charged at most once. */
import assert from 'node:assert/strict';
import { mock } from 'node:test';
import { type Test, test } from 'tap';
import type { Bridge } from '../../../src/callers/bridge/bridge.ts';
import type { Call } from '../../../src/callers/bridge/speech-call.ts';
import { Purchases } from '../../../src/callers/budget/purchases.ts';
import {
  AudioLostError,
  cardCredits,
  OutcomeUnknownError,
  type PaymentWay,
  type PendingPurchase,
  prepaid,
  type Receipt,
  type Speech,
  Speechgate,
} from '../../../src/callers/client/index.ts';
import { streamedSpeech, wholeSpeech } from '../../../src/callers/client/speech.ts';
import { askBridge, bridgeOf, HELLO, HELLO_MICRO_USD } from '../../support/bridge.ts';
import { listening, pinsOf } from '../../support/client.ts';
import { type FaultyLine, overLine } from '../../support/faulty-line.ts';
import { fundedWallet, startPrepaidGateway } from '../../support/prepaid.ts';
import { silentMp3 } from '../../support/silent-audio.ts';
import { mp3, openAiError } from '../../support/stub-upstream.ts';
import { until } from '../../support/until.ts';

const ATTEMPTS = 3;
const REPEATED = [408, 409, 429];
const FUNDS = 1_000_000n;

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly code: string | undefined;
  /** Undefined if the body broke off. */
  readonly body: Buffer | undefined;
}

/** Sends an order like the AI SDK, but without its pauses: again after 408, 409, 429, 5xx and a body that breaks off. */
async function order(
  { url }: Bridge,
  given: { readonly input?: string; readonly response_format?: string; readonly leaves?: boolean } = {},
): Promise<Answer[]> {
  const answers: Answer[] = [];
  const { leaves, ...rest } = given;
  while (answers.length < ATTEMPTS) {
    const response = await askBridge(url, rest);
    const { status, headers } = response;
    if (leaves && answers.length === 0) await response.body?.cancel();
    const audio = await response.arrayBuffer().then(Buffer.from, () => undefined);
    const code = response.ok || !audio ? undefined : JSON.parse(audio.toString()).error.code;
    answers.push({ status, headers, code, body: audio });
    if (audio && !REPEATED.includes(status) && status < 500) break;
  }
  return answers;
}

const gatewayOf = async (t: Test) => {
  const env = { JOB_SIGNING_SECRET: 'a secret of links of 32 bytes or more', ...(await listening()) };
  return startPrepaidGateway(t, env, { worker: true });
};

/** A bridge for each way to pay, at one gateway. */
async function startScenes(t: Test) {
  const gateway = await gatewayOf(t);
  const open = async (pay: PaymentWay, balance: () => Promise<bigint>, isDurable?: boolean) => {
    const line: FaultyLine = { cutAt: undefined, isCutOnce: false, retryAfter: undefined };
    const { baseUrl } = gateway.config;
    const client = new Speechgate({ baseUrl, pay, trust: pinsOf(gateway), timeoutMs: 5_000, fetch: overLine(line) });
    const calls: Call[] = [];
    const bridge = await bridgeOf(t, client, {
      ...{ flow: pay.flow, onCall: (call) => calls.push(call) },
      ...(isDurable !== undefined && { isDurable }),
    });
    let before = await balance();
    /** Micro-USD since the last time. */
    const charged = async () => {
      const now = await balance();
      const difference = before - now;
      before = now;
      return difference;
    };
    return { bridge, calls, line, upstream: gateway.upstream, isStreamed: isDurable === false, charged };
  };
  const [account, streaming] = [await gateway.fund(100), await gateway.fund(100)];
  const { wallet, balance } = await fundedWallet(gateway, FUNDS);
  return {
    card: await open(cardCredits(account), () => gateway.balance(account)),
    'card, streamed': await open(cardCredits(streaming), () => gateway.balance(streaming), false),
    prepaid: await open(prepaid(wallet), balance),
  };
}

test('a program that repeats its requests is charged at most once per call', async (t) => {
  const scenes = await startScenes(t);
  let count = 0;
  const next = () => `Hello number ${count++}`;
  for (const [way, { bridge, calls, line, upstream, isStreamed, charged }] of Object.entries(scenes)) {
    const statuses = async (given: Parameters<typeof order>[1] = {}) => {
      const answers = await order(bridge, { input: next(), ...given });
      return { answers, told: answers.map(({ status }) => status), last: answers.at(-1) as Answer };
    };

    await t.test(`${way}: a refusal is not remembered, since nothing was charged`, async (t) => {
      const input = next();
      upstream.mode = openAiError(400);
      await order(bridge, { input });
      upstream.mode = mp3();
      t.equal((await order(bridge, { input })).at(-1)?.status, 200);
      await until(async () => (await charged()) > 0n);
    });

    for (const cutAt of [0, 0.5, 0.999]) {
      await t.test(`${way}: audio cut at ${cutAt} is charged once`, async (t) => {
        const before = calls.length;
        const input = next();
        Object.assign(line, { cutAt, isCutOnce: true });
        const { told, last } = await statuses({ input });
        const price = BigInt(input.length * 18);
        if (isStreamed) {
          t.strictSame([last.code, last.status], ['audio_lost', 422]);
          t.match(String((await order(bridge, { input }))[0]?.body), /without --no-durable.*You were charged/);
        } else {
          t.strictSame(told, [200]);
          t.strictSame(last.body, silentMp3(1_000));
        }
        t.equal(await charged(), price);
        await until(() => calls.length > before);
        const shown = calls.slice(before).reduce((sum, { chargedMicroUsd }) => sum + chargedMicroUsd, 0n);
        t.equal(shown, price);
      });
    }

    await t.test(`${way}: a program that leaves in the middle gets the same audio again`, async (t) => {
      const { told, last } = await statuses({ leaves: true });
      t.strictSame(told, [200, 200]);
      t.strictSame(last.body, silentMp3(1_000));
      t.equal(last.headers.get('x-speechgate-replay'), 'true');
      t.ok((await charged()) <= 400n);
    });

    await t.test(`${way}: equal orders are one purchase in every format`, async (t) => {
      const asked = upstream.requests.length;
      const input = next();
      const formats = ['mp3', 'wav', 'pcm', 'mp3'];
      const told = await Promise.all(
        formats.map((response_format) => order(bridge, { input: ` ${input}`, response_format })),
      );
      const shown = told.flat().map(({ status }) => status);
      t.strictSame(shown, [200, 200, 200, 200]);
      t.equal(told.flat().filter(({ headers }) => headers.has('x-speechgate-replay')).length, 3);
      t.equal(upstream.requests.length - asked, 1);
      t.equal(await charged(), BigInt(input.length * 18));
    });
  }
});

const RECEIPT = { flow: 'card', chargedMicroUsd: HELLO_MICRO_USD } as Receipt;
const ORDER = { text: HELLO };

function counted(speak: (text: string) => Promise<Speech>, maxAudioBytes?: number) {
  const bought: string[] = [];
  const client = {
    speak: ({ text }: { readonly text: string }) => {
      bought.push(text);
      return speak(text);
    },
    resume: async () => assert.fail('nothing is unknown'),
    resolveOutcome: async () => null,
  };
  const limit = maxAudioBytes === undefined ? {} : { maxAudioBytes };
  return { bought, client, recent: new Purchases(client, { isDurable: true, repeatsLoss: true, ...limit }) };
}

const settled = (recent: Purchases, text: string) =>
  recent
    .buy({ text })
    .recording.then((recording) => recording.whole())
    .catch(() => undefined);

test('a charged order is remembered for ten minutes', async (t) => {
  for (const isLost of [false, true]) {
    mock.timers.enable({ apis: ['setTimeout'] });
    t.teardown(() => mock.timers.reset());
    const lost = new AudioLostError('Lost.', { chargedMicroUsd: null, maxMicroUsd: HELLO_MICRO_USD });
    const { bought, recent } = counted(async () => {
      if (isLost) throw lost;
      return wholeSpeech(Buffer.from('audio'), 'audio/mpeg', RECEIPT);
    });
    for (const [passedMs, count] of [[0, 1] as const, [599_999, 1] as const, [1, 2] as const]) {
      mock.timers.tick(passedMs);
      t.equal((await settled(recent, HELLO)) === undefined, isLost);
      t.equal(bought.length, count, `${passedMs}`);
    }
    mock.timers.reset();
  }
});

test('an unknown outcome is not remembered: the next request resumes it', async (t) => {
  const unknown = new OutcomeUnknownError({ identifier: 'one' } as PendingPurchase);
  const { bought, client, recent } = counted(() => Promise.reject(unknown));
  const resumed: PendingPurchase[] = [];
  Object.assign(client, { resume: (pending: PendingPurchase) => resumed.push(pending) && Promise.reject(unknown) });
  for (let count = 1; count <= 3; count++) {
    await assert.rejects(recent.buy(ORDER).recording, OutcomeUnknownError);
    t.strictSame([bought.length, resumed.length], [1, count - 1]);
  }
});

test('above 64 MiB of audio the oldest orders are forgotten first', async (t) => {
  const { bought, recent } = counted(async (text) => wholeSpeech(Buffer.from(text), 'audio/mpeg', RECEIPT), 10);
  const buyAll = async (...texts: string[]) => {
    bought.length = 0;
    for (const text of texts) await settled(recent, text);
    return [...bought];
  };
  t.strictSame(await buyAll('aaaa', 'bbbb', 'aaaa'), ['aaaa', 'bbbb']);
  t.strictSame(await buyAll('cccc', 'cccc', 'bbbb'), ['cccc']);
  t.strictSame(await buyAll('aaaa'), ['aaaa'], 'the oldest has gone');
  t.strictSame(await buyAll('longer than all', 'longer than all'), ['longer than all', 'longer than all']);
});

test('audio is read to its end without a listener, and a stop cuts it', async (t) => {
  let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  const stream = new ReadableStream<Uint8Array>({ start: (own) => (controller = own) });
  const { recent } = counted(async () => streamedSpeech(stream, 'audio/mpeg', RECEIPT));
  const recording = await recent.buy(ORDER).recording;
  controller?.enqueue(Buffer.from('half'));
  await until(() => recording.byteLength === 4);
  recent.release();
  await recording.ended;
  await t.rejects(recording.play(new AbortController().signal).next(), /The bridge was stopped/);
});

test('audio that breaks off is remembered only if it was charged', async (t) => {
  for (const [chargedMicroUsd, count] of [[0n, 2] as const, [198n, 1] as const, [null, 1] as const]) {
    const failure = new AudioLostError('cut', { chargedMicroUsd, maxMicroUsd: 198n });
    const { bought, recent } = counted(async () =>
      streamedSpeech(new ReadableStream({ start: (stream) => stream.error(failure) }), 'audio/mpeg', RECEIPT),
    );
    for (let request = 1; request <= 2; request++) await settled(recent, HELLO);
    t.equal(bought.length, count, `${chargedMicroUsd}`);
  }
});
