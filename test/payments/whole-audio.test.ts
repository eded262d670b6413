import assert from 'node:assert/strict';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { PAYERS, type Payer, PRICE } from '../support/payers.ts';
import { body, Drip, empty, html, json, type Mode, silentMp3, silentWav } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const FRAMES = silentMp3(240);
/** An ID3v2 tag without content. */
const ID3 = Buffer.from('ID3\x04\0\0\0\0\0\0', 'latin1');
const ID3V1 = Buffer.concat([Buffer.from('TAG'), Buffer.alloc(125)]);
const CHUNKED = { framing: 'chunked' } as const;
const labelled = (contentType: string, bytes: Uint8Array | string): Mode => body(bytes, { contentType });

const unlabelled =
  (bytes: Uint8Array): Mode =>
  (_request, response) => {
    response.writeHead(200, { 'content-length': bytes.length }).end(bytes);
  };

const otherRate = silentWav(20);
otherRate.writeUInt32LE(16_000, 24);

/** What no later attempt changes. */
const NOT_SOLD: Readonly<Record<string, Mode>> = {
  'an empty body': empty(),
  'an empty chunked body': empty(CHUNKED),
  'only a tag': body(ID3),
  'only tags': body(Buffer.concat([ID3, ID3V1]), CHUNKED),
  'JSON labelled as audio': body('{"audio":null}'),
  'JSON in an octet stream': labelled('binary/octet-stream', '{"audio":null}'),
  JSON: json({ audio: null }),
  HTML: html(),
  'HTML labelled as audio': body('<!doctype html><p>Sign in'),
  'garbage before the audio': body(Buffer.concat([Buffer.from('garbage'), FRAMES])),
  'an error in JSON behind the audio': body(Buffer.concat([FRAMES, Buffer.from('{"error":1}')])),
  'a WAV file without samples': labelled('audio/wav', silentWav(0)),
  'WAV files of different formats': labelled('audio/wav', Buffer.concat([silentWav(20), otherRate])),
  'WAV files of which the first has told its length': body(Buffer.concat([silentWav(20), silentWav(20)]), CHUNKED),
};

/** What a later attempt may bring whole. */
const CUT: Readonly<Record<string, Mode>> = {
  'a cut within a frame': body(FRAMES.subarray(0, -1)),
  'a cut within the first frame': body(FRAMES.subarray(0, 100)),
  'a cut behind the tag of a second file': body(Buffer.concat([FRAMES, ID3]), CHUNKED),
  'a cut WAV file': labelled('audio/wav', silentWav(20).subarray(0, -2)),
};

const SOLD: Readonly<Record<string, Mode>> = {
  'files with tags': body(Buffer.concat([FRAMES, ID3V1, ID3, FRAMES, ID3V1])),
  'files with tags, chunked': body(Buffer.concat([FRAMES, ID3V1, ID3, FRAMES, ID3V1]), CHUNKED),
  ...Object.fromEntries(
    [
      ...[
        'application/octet-stream',
        'binary/octet-stream',
        'audio/mpeg3',
        'audio/x-mpeg-3',
        'audio/x-mpeg',
        'audio/mp3',
      ],
      ...[
        'audio/x-mp3',
        'audio/mpg',
        'Audio/MPEG; codecs="mp3"',
        'audio/x-wav',
        'audio/wave',
        'audio/*',
        'video/mpeg',
        '',
      ],
    ].map((label) => [`MP3 labelled as "${label}"`, labelled(label, Buffer.concat([FRAMES, FRAMES]))]),
  ),
  'MP3 without a label': unlabelled(Buffer.concat([FRAMES, FRAMES])),
};

const askOf = async ({ ask, pay }: Payer): Promise<number | 'reset'> =>
  ask(await pay()).then(
    ({ status }) => status,
    () => 'reset',
  );

for (const [name, { start, skip }] of Object.entries(PAYERS)) {
  const isJob = name === 'job';

  test(`R68 ${name}: what is not whole audio is refused, and not paid`, { skip }, async (t) => {
    const payer = await start(t, { SPEECH_TIMEOUT_MS: '2000' });
    for (const [fault, mode] of Object.entries(isJob ? NOT_SOLD : { ...NOT_SOLD, ...CUT })) {
      payer.upstream.mode = mode;
      assert.equal(await askOf(payer), 502, fault);
    }
    assert.equal(await payer.paid(), 0n);
    assert.deepEqual(await audit(payer.gateway.db), []);
  });

  // A job answers 202 without audio, so there are no bytes to compare.
  if (isJob) continue;
  test(`R68 ${name}: the bytes decide, and several files are one`, { skip }, async (t) => {
    const payer = await start(t, {}, undefined, 100_000n);
    for (const [shown, mode] of Object.entries(SOLD)) {
      payer.upstream.mode = mode;
      const { status, headers, bytes } = await payer.gateway.call(payer.path, await payer.pay());
      assert.equal(status, 200, shown);
      assert.equal(headers.get('content-type'), 'audio/mpeg', shown);
      assert.ok(bytes.equals(Buffer.concat([FRAMES, FRAMES])), shown);
    }
    assert.equal(await payer.paid(), PRICE * BigInt(Object.keys(SOLD).length));
  });
}

test('R68 card: WAV files one after the other are one where its header can say so', async (t) => {
  const payer = await PAYERS.card.start(t);
  const file = silentWav(20);
  payer.upstream.mode = labelled('', Buffer.concat([file, file, file]));
  const { status, headers, bytes } = await payer.gateway.call(payer.path, await payer.pay());
  assert.deepEqual([status, headers.get('content-type')], [200, 'audio/wav']);
  assert.equal(bytes.readUInt32LE(40), 0xffffffff, 'the header leaves the length open');
  assert.ok(bytes.subarray(44).equals(Buffer.concat([file, file, file].map((each) => each.subarray(44)))));
  assert.equal(await payer.paid(), PRICE);
});

test('R68 card: what is found while the audio is heard breaks it off, and is not paid', async (t) => {
  const payer = await PAYERS.card.start(t);
  const endings: Record<string, Uint8Array> = {
    'an error in JSON': Buffer.from('{"error":"out of memory"}'),
    'half a frame': FRAMES.subarray(0, 100),
    'the tag of a second file': ID3,
  };
  for (const [ending, bytes] of Object.entries(endings)) {
    const drip = new Drip();
    payer.upstream.mode = drip.mode;
    const asked = askOf(payer);
    await drip.opened;
    await drip.write(FRAMES);
    await until(async () => (await payer.paid()) > 0n);
    await drip.write(bytes);
    drip.end();
    assert.equal(await asked, 'reset', ending);
    await until(async () => (await payer.paid()) === 0n);
  }
  assert.deepEqual(await audit(payer.gateway.db), []);
});
