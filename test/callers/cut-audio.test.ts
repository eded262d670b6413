/** Proxies that end a cut answer as if it were whole: each caller program notices, and tells what the service charged. */
import assert from 'node:assert/strict';
import { readdir, rm } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { type Test, t, test } from 'tap';
import type { Call } from '../../src/callers/bridge/speech-call.ts';
import { AudioLostError, cardCredits, prepaid, Speechgate } from '../../src/callers/client/index.ts';
import { askBridge, bridgeOf } from '../support/bridge.ts';
import { callerCommand } from '../support/caller-command.ts';
import { errorOf, pinsOf } from '../support/client.ts';
import { serve } from '../support/listening.ts';
import { fundedWallet, startPrepaidGateway } from '../support/prepaid.ts';
import { WAV_HEADER_BYTES } from '../support/silent-audio.ts';
import { cutChunked, type Mode, resetInBody, silentMp3, silentWav } from '../support/stub-upstream.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { body } from '../support/upstream-answer.ts';

/** A proxy as some are: an answer that is cut off ends in an orderly way, without a length of its own. */
async function startHidingProxy(t: Test) {
  const url = await serve(t, (asked, answer) => {
    const { method, url: path = '', headers } = asked;
    const onward = request(proxy.target + path, { method, headers } as object, (incoming) => {
      const { 'content-length': _length, 'transfer-encoding': _coding, connection: _hop, ...kept } = incoming.headers;
      answer.writeHead(incoming.statusCode ?? 502, kept).flushHeaders();
      const isAudio = kept['content-type']?.startsWith('audio/');
      let left = (isAudio && proxy.cutNextAt) || Number.POSITIVE_INFINITY;
      if (isAudio) proxy.cutNextAt = undefined;
      incoming.on('data', (chunk) => {
        answer.write(chunk.subarray(0, left));
        left -= Math.min(left, chunk.length);
      });
      incoming.on('error', () => {});
      incoming.once('close', () => answer.end());
    });
    onward.on('error', () => answer.headersSent || answer.destroy());
    asked.pipe(onward);
  });
  /** The body of the next answer with audio ends after `cutNextAt` bytes. */
  const proxy = { url, target: url, cutNextAt: undefined as number | undefined };
  return proxy;
}

const HELLO = { text: 'Hello world' };
const FUNDED = 5_000_000n;
const PRICE = 198n;
/** Longer than what is sent as a whole at once. */
const MP3 = silentMp3(6_000);
const WAV = silentWav(2_000);
for (const at of [4, 40]) WAV.writeUInt32LE(0xffff_ffff, at);
const wav = { contentType: 'audio/wav', framing: 'chunked' } as const;
const proxy = await startHidingProxy(t);
const gateway = await startPrepaidGateway(t, { BASE_URL: proxy.url }, { worker: true });
proxy.target = gateway.url;
const folder = await temporaryFolder(t);

type Heard = { readonly isWhole: boolean; readonly told: string };

/** Each program buys Hello world from the account, and tells whether it took the audio for whole. */
const PROGRAMS: Readonly<Record<string, (account: string) => Promise<Heard>>> = {
  client: async (account) => {
    const client = new Speechgate({ baseUrl: proxy.url, pay: cardCredits(account) });
    const heard = await client
      .speak(HELLO)
      .then((speech) => speech.bytes())
      .catch((error) => error);
    if (!(heard instanceof Error)) return { isWhole: true, told: '' };
    assert.ok(heard instanceof AudioLostError, String(heard));
    return { isWhole: false, told: `${heard.chargedMicroUsd} ${heard.message}` };
  },
  say: async (account) => {
    const out = join(folder, 'say.audio');
    const env = { SPEECHGATE_URL: proxy.url, SPEECHGATE_ACCOUNT: account, SPEECHGATE_CONFIG_DIR: folder };
    const { code, output } = await callerCommand(env, 'say', HELLO.text, '--out', out, '--json');
    const isWritten = (await readdir(folder)).includes('say.audio');
    await rm(out, { force: true });
    assert.equal(isWritten, code === 0, output);
    return { isWhole: code === 0, told: output };
  },
  bridge: async (account) => {
    const client = new Speechgate({ baseUrl: proxy.url, pay: cardCredits(account) });
    let told = '';
    const onCall = ({ chargedMicroUsd, error }: Call) => (told = `${chargedMicroUsd} ${error?.message}`);
    const bridge = await bridgeOf(t, client, { isDurable: false, onCall });
    const heard = await askBridge(bridge.url)
      .then(async (response) => (await response.arrayBuffer()) && response.ok)
      .catch(() => false);
    await bridge.close(1_000);
    return { isWhole: heard, told };
  },
};

const ANSWERS: readonly (readonly [what: string, mode: Mode, isWhole: boolean])[] = [
  ['an MP3 cut between two frames', cutChunked(MP3), false],
  ['an MP3 cut in its first frames', resetInBody(silentMp3(48), { framing: 'chunked' }), false],
  ['a WAV without sizes, cut between two samples', resetInBody(WAV, wav), false],
  ['a WAV without sizes, cut after its first samples', resetInBody(WAV.subarray(0, WAV_HEADER_BYTES + 96), wav), false],
  ['a whole MP3', body(MP3, { framing: 'chunked' }), true],
  ['a whole WAV without sizes', body(WAV, wav), true],
  ['a whole MP3 that is complete at once', body(silentMp3(48)), true],
];

for (const [program, buy] of Object.entries(PROGRAMS)) {
  test(`${program}: audio that the provider broke off is no success behind a proxy that hides it`, async (t) => {
    for (const [what, mode, isWhole] of ANSWERS) {
      gateway.upstream.mode = mode;
      const account = await gateway.fund(500);
      const heard = await buy(account);
      t.equal(heard.isWhole, isWhole, `${what}: ${heard.told}`);
      if (!isWhole) t.match(heard.told, /not charged/, what);
      t.equal(await gateway.balance(account), isWhole ? FUNDED - PRICE : FUNDED, what);
    }
  });
}

test('an answer that the proxy itself cuts was charged, and the client says so', async (t) => {
  gateway.upstream.mode = body(MP3, { framing: 'chunked' });
  for (const at of [1, 385, 50_000]) {
    const account = await gateway.fund(500);
    proxy.cutNextAt = at;
    const client = new Speechgate({ baseUrl: proxy.url, pay: cardCredits(account) });
    const error = await errorOf(client.speak(HELLO).then((speech) => speech.bytes()));
    t.ok(error instanceof AudioLostError, `${at}: ${error}`);
    t.equal(error.chargedMicroUsd, PRICE, `${at}`);
  }
});

// MCP pays card credit for jobs, too.
test('prepaid and durable audio that a proxy cuts is fetched again', async (t) => {
  gateway.upstream.mode = body(MP3);
  const card = new Speechgate({ baseUrl: proxy.url, pay: cardCredits(await gateway.fund(500)) });
  const payer = await fundedWallet(gateway, 1_000_000n);
  const wallet = new Speechgate({ baseUrl: proxy.url, trust: pinsOf(gateway), pay: prepaid(payer.wallet) });
  for (const at of [1, 385, MP3.length - 1]) {
    for (const buy of [() => card.speak(HELLO, { durable: true }), () => wallet.speak(HELLO)]) {
      proxy.cutNextAt = at;
      t.strictSame(Buffer.from(await (await buy()).bytes()), MP3);
    }
  }
});

test('bridge: a length that is known is told', async (t) => {
  gateway.upstream.mode = body(MP3);
  const client = new Speechgate({ baseUrl: proxy.url, pay: cardCredits(await gateway.fund(500)) });
  const { url } = await bridgeOf(t, client);
  for (const response_format of ['mp3', 'wav']) {
    const response = await askBridge(url, { response_format });
    const { byteLength } = await response.arrayBuffer();
    t.equal(Number(response.headers.get('content-length')), byteLength, response_format);
    t.ok(byteLength > 0);
  }
});
