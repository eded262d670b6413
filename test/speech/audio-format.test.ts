import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import fc from 'fast-check';
import { test } from 'tap';
import { audioReader, detectAudioType } from '../../src/speech/audio-format.ts';
import { type Begun, readIfComplete } from '../../src/speech/open-provider.ts';
import type { AudioFault, AudioType } from '../../src/speech/provider.ts';
import {
  MONO_44100,
  MP3_FRAME_BYTES,
  mpegFrames,
  silentMp3,
  silentWav,
  WAV_HEADER_BYTES,
} from '../support/silent-audio.ts';

const bytes = (...values: number[]) => Uint8Array.from(values);
const concat = (...parts: (Uint8Array | string)[]) => Buffer.concat(parts.map((part) => Buffer.from(part)));

/** What is sold of a body that comes in pieces of `size` bytes; its fault, where it is not sold. */
function sold(type: AudioType, body: Uint8Array, { size = body.length, bodyBytes }: Options = {}): Buffer | AudioFault {
  const passed: Uint8Array[] = [];
  const reader = audioReader(type, { pass: (bytes) => passed.push(bytes), bodyBytes });
  for (let i = 0; i < body.length; i += size) {
    const fault = reader.push(body.subarray(i, i + size));
    if (fault) return fault;
  }
  return reader.end() ?? Buffer.concat(passed);
}

interface Options {
  readonly size?: number;
  /** As its sender has announced it. */
  readonly bodyBytes?: number;
}

const PIECES = [1, 3, 7, 1000];

/** The fault of a body, however it comes. */
function fault(type: AudioType, body: Uint8Array): AudioFault | undefined {
  const result = sold(type, body);
  return typeof result === 'string' ? result : undefined;
}

function sells(type: AudioType, body: Uint8Array, expected: Uint8Array, bodyBytes?: number): void {
  const announced = bodyBytes === undefined ? {} : { bodyBytes };
  for (const size of [...PIECES, body.length]) {
    const result = sold(type, body, { size, ...announced });
    assert.ok(typeof result !== 'string', `${result}, in pieces of ${size} bytes`);
    assert.ok(
      result.equals(expected),
      `${result.length} bytes instead of ${expected.length}, in pieces of ${size} bytes`,
    );
  }
}

function refuses(type: AudioType, body: Uint8Array, expected: AudioFault, bodyBytes?: number): void {
  const announced = bodyBytes === undefined ? {} : { bodyBytes };
  for (const size of [...PIECES, body.length]) {
    assert.equal(sold(type, body, { size, ...announced }), expected, `in pieces of ${size} bytes`);
  }
}

function id3(contentBytes: number, flags = 0): Buffer {
  const size = [21, 14, 7, 0].map((shift) => (contentBytes >> shift) & 0x7f);
  return concat('ID3', bytes(4, 0, flags, ...size), Buffer.alloc(contentBytes, 0xaa));
}

const ape = (contentBytes: number): Buffer => {
  const tag = (flags: number) => {
    const bytes = Buffer.alloc(32);
    bytes.write('APETAGEX', 'latin1');
    bytes.writeUInt32LE(2000, 8);
    bytes.writeUInt32LE(contentBytes + 32, 12);
    bytes.writeUInt32LE(flags, 20);
    return bytes;
  };
  return concat(tag(0xa0000000), Buffer.alloc(contentBytes, 7), tag(0x80000000));
};

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

test('magic bytes decide the audio type', async (t) => {
  const cases: [string, Uint8Array, string][] = [
    ['MPEG 1 Layer III', silentMp3(24), 'audio/mpeg'],
    ['MPEG 2 Layer III', bytes(0xff, 0xf3, 0x64, 0xc4), 'audio/mpeg'],
    ['MPEG 2.5 Layer III', bytes(0xff, 0xe3, 0x18, 0xc4), 'audio/mpeg'],
    ['an ID3v2 tag', id3(20), 'audio/mpeg'],
    ['an APE tag', ape(20), 'audio/mpeg'],
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
    t.test(`detects ${name} as ${expected}`, async (t) => t.equal(detectAudioType(start), expected));
  }

  t.test('asks for more bytes while the type is undecided', async (t) => {
    for (const [whole, needed] of [
      [silentMp3(24), 4],
      [id3(0), 10],
      [silentWav(1), 12],
    ] as const) {
      for (let length = 0; length < needed; length++) {
        t.equal(detectAudioType(whole.subarray(0, length)), undefined, `${length} of ${needed} bytes`);
      }
      t.not(detectAudioType(whole.subarray(0, needed)), undefined);
    }
  });
});

/** A frame that describes a file of so many bytes, itself included, as LAME writes it. */
function description(fileBytes: number, name: 'Xing' | 'Info' | 'VBRI' = 'Info', flags = 3): Buffer {
  const frame = silentMp3(24);
  const at = name === 'VBRI' ? 36 : 21;
  frame.write(name, at, 'latin1');
  if (name === 'VBRI') frame.writeUInt32BE(fileBytes, at + 10);
  else {
    frame.writeUInt32BE(flags, at + 4);
    frame.writeUInt32BE(flags & 2 ? fileBytes : 0, at + (flags & 1 ? 12 : 8));
  }
  return frame;
}

const ID3V1 = concat('TAG', Buffer.alloc(125, 0x20));
const FRAMES = silentMp3(240);
const LONGER = silentMp3(480);

test('R68: one complete MP3 file is sold unchanged', async (t) => {
  const lame = (name: 'Xing' | 'Info' | 'VBRI') => concat(description(FRAMES.length + 384, name), FRAMES);
  const cases: [string, Uint8Array][] = [
    ['frames alone', FRAMES],
    ['after an ID3v2 tag', concat(id3(300), FRAMES)],
    ['after an ID3v2 tag with a footer', concat(id3(50, 0x10), Buffer.alloc(10, 0x33), FRAMES)],
    ['with a Xing frame', lame('Xing')],
    ['with an Info frame', lame('Info')],
    ['with a VBRI frame', lame('VBRI')],
    ['with a tag and an Info frame', concat(id3(10), lame('Info'))],
  ];
  for (const [name, body] of cases) {
    t.test(name, async () => sells('audio/mpeg', body, body, body.length));
  }
});

test('R68: consecutive MP3 files are sold as one', async (t) => {
  const lame = concat(description(FRAMES.length + 384), FRAMES);
  const both = concat(FRAMES, LONGER);
  const cases: [string, Uint8Array, Uint8Array][] = [
    ['frames alone', both, both],
    ['with ID3v2 tags', concat(id3(9), FRAMES, id3(9), LONGER), concat(id3(9), both)],
    ['with ID3v1 tags', concat(FRAMES, ID3V1, LONGER, ID3V1), both],
    ['with tags at both ends of each', concat(id3(9), FRAMES, ID3V1, id3(400), LONGER, ID3V1), concat(id3(9), both)],
    ['with APE tags', concat(FRAMES, ape(40), LONGER, ape(0)), both],
    ['with padding', concat(FRAMES, Buffer.alloc(99), LONGER, Buffer.alloc(3)), both],
    ['with descriptions', concat(lame, lame), concat(FRAMES, FRAMES)],
    ['with tags and descriptions', concat(id3(9), lame, id3(9), lame), concat(id3(9), FRAMES, FRAMES)],
    ['with a description in the first', concat(lame, LONGER), both],
    ['with a description in the last', concat(LONGER, lame), concat(LONGER, FRAMES)],
    ['with an empty description', concat(description(0, 'Xing', 0), FRAMES, lame), concat(FRAMES, FRAMES)],
  ];
  for (const [name, body, expected] of cases) {
    t.test(name, async () => {
      sells('audio/mpeg', body, expected);
      sells('audio/mpeg', body, expected, body.length);
    });
  }
});

test('R68: tags, padding and descriptions around an MP3 file are removed', async (t) => {
  const cases: [string, Uint8Array, Uint8Array][] = [
    ['before an ID3v1 tag', concat(FRAMES, ID3V1), FRAMES],
    ['after an APE tag', concat(ape(40), FRAMES), FRAMES],
    ['after two ID3v2 tags', concat(id3(300), id3(0), FRAMES), concat(id3(300), FRAMES)],
    ['after an APE tag and an ID3v2 tag', concat(ape(40), id3(9), FRAMES), FRAMES],
    ['after zeros and an ID3v2 tag', concat(id3(0), Buffer.alloc(9), id3(9), FRAMES), concat(id3(0), FRAMES)],
    ['before an extended ID3v1 tag', concat(FRAMES, 'TAG+', Buffer.alloc(223), ID3V1), FRAMES],
    ['before an APE tag', concat(FRAMES, ape(40), ID3V1), FRAMES],
    ['before an appended ID3v2 tag', concat(FRAMES, id3(20, 0x10), Buffer.alloc(10, 0x33)), FRAMES],
    ['after a tag that is followed by zeros', concat(id3(20), Buffer.alloc(99), FRAMES), concat(id3(20), FRAMES)],
    ['described, in a body of unknown length', concat(description(FRAMES.length + 384), FRAMES), FRAMES],
  ];
  for (const [name, body, expected] of cases) t.test(name, async () => sells('audio/mpeg', body, expected));

  t.test('with a description, before an ID3v1 tag', async () => {
    const lame = concat(description(FRAMES.length + 384), FRAMES);
    const body = concat(lame, ID3V1);
    sells('audio/mpeg', body, lame, body.length);
  });
});

const OTHER_RATE = mpegFrames(MONO_44100);
const STEREO = mpegFrames([0xff, 0xfb, 0x94, 0x04]);

test('R68: an MP3 whose rate or channels change is not sold', async (t) => {
  const lame = concat(description(FRAMES.length + 384), FRAMES);
  const cases: [string, Uint8Array][] = [
    ['the sampling rate', concat(FRAMES, OTHER_RATE)],
    ['the MPEG version, and so the rate', concat(FRAMES, mpegFrames([0xff, 0xf3, 0x94, 0xc4]))],
    ['mono to stereo', concat(FRAMES, STEREO)],
    ['stereo to mono', concat(STEREO, FRAMES)],
    ['only the last frame', concat(FRAMES, FRAMES, STEREO.subarray(0, MP3_FRAME_BYTES))],
    ['back again', concat(FRAMES, STEREO, FRAMES)],
    ['between files with tags', concat(id3(9), FRAMES, ID3V1, id3(9), OTHER_RATE, ID3V1)],
    ['between files with descriptions', concat(lame, mpegFrames([0xff, 0xfb, 0x94, 0x04]))],
    ['after the description', concat(description(OTHER_RATE.length + 384), OTHER_RATE)],
  ];
  for (const [name, body] of cases) {
    t.test(name, async () => {
      refuses('audio/mpeg', body, 'several files');
      refuses('audio/mpeg', body, 'several files', body.length);
    });
  }
});

test('R68: an MP3 whose bit rate or stereo mode changes is sold', async () => {
  const body = concat(FRAMES, mpegFrames([0xff, 0xfb, 0x54, 0xc4]));
  sells('audio/mpeg', body, body);
  const joint = concat(STEREO, mpegFrames([0xff, 0xfb, 0x94, 0x64]), mpegFrames([0xff, 0xfb, 0x94, 0x84]));
  sells('audio/mpeg', joint, joint);
});

test('R68: a truncated MP3 is not sold', async (t) => {
  t.test('cut anywhere in its last frame', async (t) => {
    const whole = silentMp3(72);
    for (let length = 2 * MP3_FRAME_BYTES + 1; length < whole.length; length++) {
      t.equal(fault('audio/mpeg', whole.subarray(0, length)), 'truncated', `${length} bytes`);
    }
  });

  const cases: [string, Uint8Array][] = [
    ['inside its ID3v2 tag', id3(300).subarray(0, 200)],
    ['inside its ID3v1 tag', concat(FRAMES, ID3V1.subarray(0, 60))],
    ['inside its APE tag', concat(FRAMES, ape(40).subarray(0, 50))],
    ['after the tag of a second file', concat(id3(9), FRAMES, id3(9))],
    ['inside the tag of a second file', concat(FRAMES, id3(90).subarray(0, 40))],
    ['after the description of a second file', concat(FRAMES, description(0))],
    ['between two frames, and its description says so', concat(description(LONGER.length + 384), FRAMES)],
    [
      'between two frames of its first file, and the description says so',
      concat(description(LONGER.length + 384), FRAMES, id3(9), FRAMES),
    ],
  ];
  for (const [name, body] of cases) t.test(name, async () => refuses('audio/mpeg', body, 'truncated'));
});

test('R68: an MP3 without an audio frame is not sold', async (t) => {
  const cases: [string, Uint8Array][] = [
    ['only a tag', id3(300)],
    ['only tags', concat(id3(300), ape(3), ID3V1)],
    ['only a description', description(384)],
    ['a tag and zeros', concat(id3(3), Buffer.alloc(5000))],
  ];
  for (const [name, body] of cases) t.test(name, async () => refuses('audio/mpeg', body, 'no audio'));
});

test('R68: an MP3 with foreign data is not sold', async (t) => {
  const cases: [string, Uint8Array][] = [
    ['garbage at the end', concat(FRAMES, bytes(0x49, 0x01, 0xff))],
    ['an error in JSON at the end', concat(FRAMES, '{"error":"out of memory"}')],
    ['HTML at the end', concat(FRAMES, '<!doctype html>')],
    ['garbage between frames', concat(FRAMES, 'garbage', FRAMES)],
    ['a tag before something else', concat(id3(20), 'OggS')],
    ['a WAV file behind it', concat(FRAMES, silentWav(10))],
    ['AAC behind it', concat(FRAMES, bytes(0xff, 0xf1, 0x50, 0x80), Buffer.alloc(300))],
    ['one good header before garbage', concat(silentMp3(24).subarray(0, 4), Buffer.alloc(2000, 0x5a))],
  ];
  for (const [name, body] of cases) t.test(name, async () => refuses('audio/mpeg', body, 'damaged'));
});

const DATA = riffChunk('data', SAMPLES);
const LIST = riffChunk('LIST', Buffer.alloc(13, 1));
const STREAMING_SIZES = [0, 0xffffffff, 0x7fffffff - 36, 0x7ffff000];
const streamingWav = (content: Uint8Array, size = 0xffffffff) => riff([FMT, riffChunk('data', content, size)], size);

test('R68: one complete WAV file is sold unchanged', async (t) => {
  const cases: [string, Uint8Array][] = [
    ['by itself', silentWav(20)],
    ['with chunks before, between and after', riff([LIST, FMT, LIST, DATA, LIST])],
    ['with an odd data chunk and no padding byte', riff([FMT, riffChunk('data', Buffer.alloc(9))]).subarray(0, -1)],
    ['with a RIFF size that is too large', riff([FMT, DATA], 1_000_000)],
  ];
  for (const [name, body] of cases) {
    t.test(name, async () => {
      sells('audio/wav', body, body);
      sells('audio/wav', body, body, body.length);
    });
  }
});

test('R68: a streamed WAV is sold with 0xFFFFFFFF for sizes that it lacks', async () => {
  for (const size of STREAMING_SIZES) {
    const body = streamingWav(SAMPLES, size);
    sells('audio/wav', body, streamingWav(SAMPLES));
    sells('audio/wav', body, streamingWav(SAMPLES), body.length);
    const chunks = [LIST, FMT, riffChunk('data', SAMPLES, size)];
    sells('audio/wav', riff(chunks), riff([LIST, FMT, riffChunk('data', SAMPLES, 0xffffffff)], 0xffffffff));
    sells('audio/wav', riff([FMT, DATA, LIST], size), riff([FMT, DATA, LIST], 0xffffffff));
  }
});

test('R68: consecutive WAV files of one format are sold as one', async (t) => {
  const joined = (head: Uint8Array) => concat(head, SAMPLES, SAMPLES, SAMPLES);
  const whole = riff([FMT, DATA, LIST]);

  t.test('with an open length in the first', async () => {
    for (const size of STREAMING_SIZES) {
      const first = streamingWav(SAMPLES, size);
      const expected = joined(streamingWav(SAMPLES).subarray(0, WAV_HEADER_BYTES));
      sells('audio/wav', concat(first, first, first), expected);
      sells('audio/wav', concat(first, whole, whole), expected);
    }
  });

  t.test('with a body known to be longer than the first', async () => {
    const body = concat(whole, whole, whole);
    sells('audio/wav', body, joined(streamingWav(SAMPLES).subarray(0, WAV_HEADER_BYTES)), body.length);
  });

  t.test('with an empty file among them', async () => {
    const first = streamingWav(SAMPLES);
    const body = concat(first, silentWav(0), whole, silentWav(0));
    sells('audio/wav', body, concat(first, SAMPLES));
  });
});

test('R68: WAV files that cannot be joined are not sold', async (t) => {
  const whole = riff([FMT, DATA]);
  const otherRate = Buffer.from(streamingWav(SAMPLES));
  otherRate.writeUInt32LE(16_000, 24);

  t.test('because the first has already declared its length', async () => {
    refuses('audio/wav', concat(whole, whole), 'several files');
    refuses('audio/wav', concat(whole, streamingWav(SAMPLES)), 'several files');
  });

  t.test('because their formats differ', async () => {
    refuses('audio/wav', concat(streamingWav(SAMPLES), otherRate), 'several files');
    const body = concat(whole, otherRate);
    refuses('audio/wav', body, 'several files', body.length);
  });
});

test('R68: a truncated WAV is not sold', async (t) => {
  t.test('cut anywhere', async (t) => {
    const whole = silentWav(1);
    for (let length = 12; length < whole.length; length++) {
      t.equal(fault('audio/wav', whole.subarray(0, length)), 'truncated', `${length} bytes`);
    }
  });

  t.test('with a RIFF size larger than the body', async (t) => {
    const body = riff([FMT, riffChunk('data', SAMPLES, 0xffffffff)]);
    t.equal(fault('audio/wav', body), undefined);
    refuses('audio/wav', body.subarray(0, -100), 'truncated');
  });

  const streaming = streamingWav(SAMPLES);
  const cases: [string, Uint8Array][] = [
    ['inside a sample, of unknown length', streaming.subarray(0, -1)],
    ['in the header of a second file', concat(streaming, streaming.subarray(0, 30))],
    ['after the header of a second file', concat(streaming, streaming.subarray(0, WAV_HEADER_BYTES))],
    ['in the samples of a second file', concat(streaming, riff([FMT, DATA]).subarray(0, -2))],
    ['in a chunk after its samples', riff([FMT, DATA, LIST]).subarray(0, -5)],
  ];
  for (const [name, body] of cases) t.test(name, async () => refuses('audio/wav', body, 'truncated'));
});

test('R68: a WAV without a sample is not sold', async (t) => {
  refuses('audio/wav', silentWav(0), 'no audio');
  refuses('audio/wav', riff([FMT], 0), 'no audio');
  refuses('audio/wav', streamingWav(Buffer.alloc(0)), 'no audio');
  t.equal(silentWav(0).length, WAV_HEADER_BYTES);
});

test('R68: a WAV that players cannot read to its end is not sold', async (t) => {
  const withFormat = (offset: number) => {
    const body = Buffer.from(riff([FMT, DATA]));
    body.writeUInt16LE(0, offset);
    return body;
  };
  const cases: [string, Uint8Array][] = [
    ['with samples before their format', riff([DATA, FMT])],
    ['without a format', riff([DATA])],
    ['without a channel', withFormat(22)],
    ['without a block size', withFormat(32)],
    ['with a format that is too short', riff([riffChunk('fmt ', Buffer.alloc(8, 1)), DATA])],
    ['with more samples than declared', riff([FMT, riffChunk('data', SAMPLES, 100)])],
    ['with two chunks of samples', riff([FMT, DATA, DATA])],
    ['with an error in JSON behind it', concat(riff([FMT, DATA]), bytes(0), '{"error":1}')],
    ['with silence behind it', concat(riff([FMT, DATA]), Buffer.alloc(100))],
  ];
  for (const [name, body] of cases) t.test(name, async () => refuses('audio/wav', body, 'damaged'));
});

test('the sold audio does not depend on how the body is chunked', async () => {
  const piece = fc.oneof(
    fc.uint8Array({ maxLength: 60 }),
    fc.constant(silentMp3(48)),
    fc.constant(id3(11)),
    fc.constant(riff([FMT, riffChunk('data', SAMPLES)])),
    fc.constant(riff([FMT, riffChunk('data', SAMPLES, 0)], 0)),
    fc.constant(description(500)),
    fc.constant(ape(4)),
  );
  fc.assert(
    fc.property(
      fc.constantFrom<AudioType>('audio/mpeg', 'audio/wav'),
      fc.array(piece, { maxLength: 5 }),
      fc.integer({ min: 1, max: 50 }),
      (type, pieces, size) => {
        const body = concat(...pieces);
        assert.deepEqual(sold(type, body, { size }), sold(type, body));
      },
    ),
  );
});

/** A provider that has given these chunks so far. */
function given(...chunks: string[]) {
  const source = new Readable({ objectMode: true, read() {} });
  for (const chunk of chunks) source.push(Buffer.from(chunk));
  return source;
}

const textOf = ({ audio }: Begun) => text(Readable.from(audio));

async function flowing(audio: AsyncIterable<Uint8Array>) {
  const begun = await readIfComplete(audio);
  if (begun.outcome !== 'flowing') throw new Error(`It is ${begun.outcome}.`);
  return begun;
}

test('audio that ends in the turn in which it starts is complete', async (t) => {
  const queue = given('one ', 'two ');
  queue.push(Buffer.from('three'));
  queue.push(null);
  t.strictSame(await readIfComplete(queue), { outcome: 'whole', audio: Buffer.from('one two three') });
});

test('audio without its end yet streams completely and in order', async (t) => {
  const queue = given('one ', 'two ');
  const begun = await flowing(queue);
  queue.push(Buffer.from('three'));
  queue.push(null);
  t.equal(await textOf(begun), 'one two three');
});

test('audio larger than one write streams, even if it has ended', async (t) => {
  const queue = given('a'.repeat(40_000), 'b'.repeat(40_000), 'c');
  queue.push(null);
  t.equal((await textOf(await flowing(queue))).length, 80_001);
});

test('audio aborted at once is refused, and later the read fails', async (t) => {
  const atOnce = given('one');
  atOnce.destroy(new Error('cut'));
  await t.rejects(readIfComplete(atOnce), /cut/);

  const later = given('one');
  const begun = await flowing(later);
  later.destroy(new Error('cut later'));
  await t.rejects(textOf(begun), /cut later/);
});

test('a reader that stops also stops the upstream', async (t) => {
  const source = given('a'.repeat(70_000));
  for await (const chunk of (await flowing(source)).audio) {
    t.equal(chunk.length, 70_000);
    break;
  }
  t.ok(source.destroyed);
});
