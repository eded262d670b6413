import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { audioCheck, detectAudioType } from '../../src/speech/audio-format.ts';
import { frameLength } from '../../src/speech/mpeg-audio.ts';
import type { AudioType } from '../../src/speech/provider.ts';
import { MP3_FRAME_BYTES, silentMp3, silentWav, WAV_HEADER_BYTES } from '../support/silent-audio.ts';

const bytes = (...values: number[]) => Uint8Array.from(values);
const concat = (...parts: (Uint8Array | string)[]) => Buffer.concat(parts.map((part) => Buffer.from(part)));

/** The verdict at the end of a body, fed in pieces of `size` bytes. */
function fault(type: AudioType, body: Uint8Array, size = body.length) {
  const check = audioCheck(type);
  for (let i = 0; i < body.length; i += size) check.push(body.subarray(i, i + size));
  return check.end();
}

function id3(contentBytes: number, flags = 0): Buffer {
  const size = [21, 14, 7, 0].map((shift) => (contentBytes >> shift) & 0x7f);
  return concat('ID3', bytes(4, 0, flags, ...size), Buffer.alloc(contentBytes, 0xaa));
}

function riffChunk(id: string, content: Uint8Array, size = content.length): Buffer {
  const header = Buffer.alloc(8);
  header.write(id, 'latin1');
  header.writeUInt32LE(size, 4);
  return concat(header, content, Buffer.alloc(content.length % 2));
}

function riff(chunks: Uint8Array[], size?: number): Buffer {
  const content = concat('WAVE', ...chunks);
  return riffChunk('RIFF', content, size ?? content.length);
}

const FMT = riffChunk('fmt ', silentWav(0).subarray(20, 36));
const SAMPLES = Buffer.alloc(1000, 1);

test('magic bytes', async (t) => {
  const cases: [string, Uint8Array, string][] = [
    ['MPEG 1 Layer III', silentMp3(24), 'audio/mpeg'],
    ['MPEG 2 Layer III', bytes(0xff, 0xf3, 0x64, 0xc4), 'audio/mpeg'],
    ['MPEG 2.5 Layer III', bytes(0xff, 0xe3, 0x18, 0xc4), 'audio/mpeg'],
    ['an ID3v2 tag', id3(20), 'audio/mpeg'],
    ['WAV', silentWav(1), 'audio/wav'],
    ['AAC in ADTS, which shares the sync bits', bytes(0xff, 0xf1, 0x50, 0x80), 'not-audio'],
    ['MPEG Layer II', bytes(0xff, 0xfd, 0x94, 0xc4), 'not-audio'],
    ['the reserved MPEG version', bytes(0xff, 0xeb, 0x94, 0xc4), 'not-audio'],
    ['the forbidden bit rate', bytes(0xff, 0xfb, 0xf4, 0xc4), 'not-audio'],
    ['free format', bytes(0xff, 0xfb, 0x04, 0xc4), 'not-audio'],
    ['the reserved sampling rate', bytes(0xff, 0xfb, 0x9c, 0xc4), 'not-audio'],
    ['the reserved emphasis', bytes(0xff, 0xfb, 0x94, 0xc6), 'not-audio'],
    ['a UTF-16 byte order mark', bytes(0xff, 0xfe, 0x7b, 0x00), 'not-audio'],
    ['an ID3 tag whose size is not synchsafe', concat('ID3', bytes(4, 0, 0, 0, 0, 0x80, 0)), 'not-audio'],
    ['JSON', concat('{"detail":[]}'), 'not-audio'],
    ['RIFF that is not WAVE', concat('RIFF', bytes(1, 0, 0, 0), 'AVI '), 'not-audio'],
    ['Ogg', concat('OggS'), 'not-audio'],
    ['FLAC', concat('fLaC'), 'not-audio'],
  ];
  for (const [name, start, expected] of cases) {
    t.test(`takes ${name} for ${expected}`, async () => assert.equal(detectAudioType(start), expected));
  }

  t.test('asks for more bytes as long as both outcomes are possible', async () => {
    for (const [whole, needed] of [
      [silentMp3(24), 4],
      [id3(0), 10],
      [silentWav(1), 12],
    ] as const) {
      for (let length = 0; length < needed; length++) {
        assert.equal(detectAudioType(whole.subarray(0, length)), undefined, `${length} of ${needed} bytes`);
      }
      assert.notEqual(detectAudioType(whole.subarray(0, needed)), undefined);
    }
  });
});

test('computes frame lengths of all three MPEG versions, with and without padding', async () => {
  assert.equal(frameLength(bytes(0xff, 0xfb, 0x90, 0xc4)), 417); // MPEG 1, 128 kbit/s, 44.1 kHz
  assert.equal(frameLength(bytes(0xff, 0xfb, 0x92, 0xc4)), 418);
  assert.equal(frameLength(bytes(0xff, 0xf3, 0x64, 0xc4)), 144); // MPEG 2, 48 kbit/s, 24 kHz
  assert.equal(frameLength(bytes(0xff, 0xe3, 0x18, 0xc4)), 72); // MPEG 2.5, 8 kbit/s, 8 kHz
});

test('an MP3 is whole', async (t) => {
  const frames = silentMp3(240);
  const cases: [string, Uint8Array][] = [
    ['by itself', frames],
    ['after an ID3v2 tag', concat(id3(300), frames)],
    ['after an ID3v2 tag with a footer', concat(id3(50, 0x10), Buffer.alloc(10, 0x33), frames)],
    ['after a tag that is followed by zeros', concat(id3(20), Buffer.alloc(99), frames)],
    ['joined of two files', concat(id3(9), frames, id3(9), frames)],
    ['before an ID3v1 tag', concat(frames, 'TAG', Buffer.alloc(125))],
    ['before an APE tag', concat(frames, 'APETAGEX', Buffer.alloc(40, 7))],
    ['before garbage', concat(frames, bytes(0x49, 0x01, 0xff))],
  ];
  for (const [name, body] of cases) {
    t.test(name, async () => {
      for (const size of [1, 3, 7, 1000, body.length]) assert.equal(fault('audio/mpeg', body, size), undefined);
    });
  }
});

test('an MP3 is truncated', async (t) => {
  t.test('wherever its last frame is cut', async () => {
    const whole = silentMp3(72);
    for (let length = 2 * MP3_FRAME_BYTES + 1; length < whole.length; length++) {
      assert.equal(fault('audio/mpeg', whole.subarray(0, length)), 'truncated', `${length} bytes`);
    }
  });

  t.test('inside its ID3v2 tag', async () => assert.equal(fault('audio/mpeg', id3(300).subarray(0, 200)), 'truncated'));
});

test('an MP3 that is only a tag holds no audio', async () => assert.equal(fault('audio/mpeg', id3(300)), 'no audio'));

test('a WAV is whole', async (t) => {
  const data = riffChunk('data', SAMPLES);
  const list = riffChunk('LIST', Buffer.alloc(13, 1));
  const cases: [string, Uint8Array][] = [
    ['by itself', silentWav(20)],
    ['with chunks before, between and after', riff([list, FMT, list, data, list])],
    ['with data before fmt', riff([data, FMT])],
    ['with an odd data chunk and no padding byte', riff([FMT, riffChunk('data', Buffer.alloc(9))]).subarray(0, -1)],
    ['with garbage at the end', concat(riff([FMT, data]), 'garbage')],
    ['with a wrong RIFF size and the right data size', riff([FMT, data], 1_000_000)],
    ...[0, 0xffffffff, 0x7fffffff - 36, 0x7ffff000].map((size): [string, Uint8Array] => [
      `streamed with the sizes ${size}`,
      riff([FMT, riffChunk('data', SAMPLES, size)], size),
    ]),
  ];
  for (const [name, body] of cases) {
    t.test(name, async () => {
      for (const size of [1, 3, 7, body.length]) assert.equal(fault('audio/wav', body, size), undefined);
    });
  }
});

test('a WAV is truncated', async (t) => {
  t.test('wherever it is cut', async () => {
    const whole = silentWav(1);
    for (let length = 12; length < whole.length; length++) {
      assert.equal(fault('audio/wav', whole.subarray(0, length)), 'truncated', `${length} bytes`);
    }
  });

  t.test('when only the RIFF size is known and exceeds what came', async () => {
    const body = riff([FMT, riffChunk('data', SAMPLES, 0xffffffff)]);
    assert.equal(fault('audio/wav', body), undefined);
    assert.equal(fault('audio/wav', body.subarray(0, -100)), 'truncated');
  });
});

test('a WAV without a sample holds no audio', async () => {
  assert.equal(fault('audio/wav', silentWav(0)), 'no audio');
  assert.equal(fault('audio/wav', riff([FMT], 0)), 'no audio');
  assert.equal(silentWav(0).length, WAV_HEADER_BYTES);
});

test('the verdict does not depend on how a body is cut into chunks, and no body makes a check throw', async () => {
  const piece = fc.oneof(
    fc.uint8Array({ maxLength: 60 }),
    fc.constant(silentMp3(48)),
    fc.constant(id3(11)),
    fc.constant(riff([FMT, riffChunk('data', SAMPLES)])),
  );
  fc.assert(
    fc.property(
      fc.constantFrom<AudioType>('audio/mpeg', 'audio/wav'),
      fc.array(piece, { maxLength: 5 }),
      fc.integer({ min: 1, max: 50 }),
      (type, pieces, size) => {
        const body = concat(...pieces);
        assert.equal(fault(type, body, size), fault(type, body));
      },
    ),
  );
});
