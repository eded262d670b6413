import { test } from 'tap';
import { readDescription } from '../../src/speech/mpeg-frame.ts';
import type { AudioType } from '../../src/speech/provider.ts';
import { wholeAudio } from '../../src/speech/whole-audio.ts';
import { probe, withoutProbe } from '../support/probed-audio.ts';
import { description, MP3_FRAME_BYTES, mpegFrames, silentMp3, silentWav } from '../support/silent-audio.ts';

const FRAMES = silentMp3(2_400);
const COUNT = FRAMES.length / MP3_FRAME_BYTES;
const OTHER_BIT_RATE = mpegFrames([0xff, 0xfb, 0x54, 0xc4], 50);
const VARIABLE = Buffer.concat([FRAMES, OTHER_BIT_RATE]);
const TAG = Buffer.concat([Buffer.from('ID3\x04\0\0\0\0\0\x05', 'latin1'), Buffer.alloc(5, 7)]);
const fitting = (frames: Uint8Array, count: number) =>
  description({ frames: count, fileBytes: MP3_FRAME_BYTES + frames.length });

const whole = (type: AudioType, bytes: Uint8Array, given?: Uint8Array) =>
  Buffer.from(wholeAudio(type, Buffer.from(bytes), given));

test('an MP3 of one bit rate without a description is left as it is', async (t) => {
  for (const mp3 of [FRAMES, Buffer.concat([TAG, FRAMES]), Buffer.alloc(0), Buffer.from('no audio')]) {
    t.strictSame(whole('audio/mpeg', mp3), mp3);
  }
});

test('a description that fits the MP3 is kept', async (t) => {
  const all: [string, Uint8Array, number][] = [
    ['one bit rate', FRAMES, COUNT],
    ['several bit rates', VARIABLE, COUNT + 50],
  ];
  for (const [name, frames, count] of all) {
    for (const each of [
      fitting(frames, count),
      description({ frames: count }),
      description({ fileBytes: MP3_FRAME_BYTES + frames.length }),
      description({ frames: count + 1, fileBytes: frames.length }),
    ]) {
      const file = Buffer.concat([TAG, each, frames]);
      t.strictSame(whole('audio/mpeg', Buffer.concat([TAG, frames]), each), file, `${name}, left out`);
      t.strictSame(whole('audio/mpeg', file), file, `${name}, in its place`);
    }
  }
});

test('an MP3 that needs a description without a fitting one gets one', async (t) => {
  const first = fitting(FRAMES, COUNT);
  const cases: [string, Uint8Array, Uint8Array | undefined, 'Xing' | 'Info'][] = [
    ['several bit rates', VARIABLE, undefined, 'Xing'],
    ['the description of the first of several files', Buffer.concat([FRAMES, FRAMES]), first, 'Info'],
    ['the same, of another bit rate', VARIABLE, first, 'Xing'],
    ['a description without numbers', FRAMES, description({}), 'Info'],
    ['a description of zeros', FRAMES, description({ frames: 0, fileBytes: 0 }), 'Info'],
    ['stereo of 22,050 Hz', mpegFrames([0xff, 0xf3, 0x80, 0x44], 100), description({}), 'Info'],
    ['8,000 Hz', mpegFrames([0xff, 0xe3, 0x88, 0xc4], 100), description({}), 'Info'],
    ['frames with a CRC', mpegFrames([0xff, 0xfa, 0x94, 0xc4], 100), description({}), 'Info'],
  ];
  for (const [name, frames, given, kind] of cases) {
    t.test(name, async (t) => {
      const file = whole('audio/mpeg', Buffer.concat([TAG, frames]), given);
      t.strictSame(file.subarray(0, TAG.length), TAG);
      t.strictSame(file.subarray(-frames.length), frames);
      const described = file.subarray(TAG.length, -frames.length);
      const { fileBytes, frames: count } = readDescription(described) ?? {};
      t.equal(fileBytes, described.length + frames.length);
      t.equal(whole('audio/mpeg', file).length, file.length, 'and has it once');
      const xing = described.indexOf(kind);
      t.ok(xing > 0);
      const toc = [...described.subarray(xing + 16, xing + 116)];
      t.strictSame(
        toc,
        toc.toSorted((one, other) => one - other),
      );
      t.ok((toc[99] ?? 0) > 240);
      if (withoutProbe) return;
      const probed = await probe(file, 'mp3');
      t.equal(count, Math.round((probed.seconds * probed.rate) / (described[1] === 0xfb ? 1152 : 576)));
    });
  }
});

test('a whole WAV gets its real sizes', async (t) => {
  const wav = silentWav(100);
  for (const sizes of [
    [0, 0],
    [36, 0],
    [0xffffffff, 0xffffffff],
    [0, wav.length - 44],
    [0x7fffffff, 0x7fffffff - 36],
    [1_000_000, wav.length - 44],
  ] as const) {
    const streamed = Buffer.from(wav);
    sizes.forEach((size, index) => {
      streamed.writeUInt32LE(size, index === 0 ? 4 : 40);
    });
    t.strictSame(whole('audio/wav', streamed), wav, String(sizes));
  }
  const list = Buffer.concat([Buffer.from('LIST\x03\0\0\0abc\0', 'latin1')]);
  const withChunks = Buffer.concat([wav.subarray(0, 36), list, wav.subarray(36), list]);
  withChunks.writeUInt32LE(0, 4);
  const sized = whole('audio/wav', withChunks);
  t.strictSame([sized.readUInt32LE(4), sized.readUInt32LE(52)], [sized.length - 8, wav.length - 44]);
  for (const bytes of [Buffer.alloc(0), Buffer.from('RIFF'), Buffer.from('no audio at all')]) {
    t.strictSame(whole('audio/wav', bytes), bytes);
  }
});
