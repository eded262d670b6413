import assert from 'node:assert/strict';
import { test } from 'tap';
import { audioEnd, holdingBack } from '../../src/speech/audio-end.ts';
import type { AudioType } from '../../src/speech/provider.ts';
import { MP3_FRAME_BYTES, silentMp3, silentWav, WAV_HEADER_BYTES } from '../support/silent-audio.ts';

const FRAMES = silentMp3(72);
const ID3 = Buffer.from([...Buffer.from('ID3'), 4, 0, 0, 0, 0, 0, 20, ...Buffer.alloc(20)]);
const APE = Buffer.alloc(32 + 40);
APE.write('APETAGEX');
APE.writeUInt32LE(40, 12);
APE.writeUInt32LE(0x2000_0000, 20);

/** With these sizes in its header. */
function wavOf(riffSize: number, dataSize: number): Buffer {
  const audio = silentWav(20);
  audio.writeUInt32LE(riffSize, 4);
  audio.writeUInt32LE(dataSize, 40);
  return audio;
}
const WAV = silentWav(20);
const atSamples = (length: number) => length > WAV_HEADER_BYTES && length % 2 === 0;
const atFrames = (tag: number) => (length: number) => length > tag && (length - tag) % MP3_FRAME_BYTES === 0;

const CASES: readonly (readonly [string, AudioType, Buffer, 'whole' | 'unknown', (length: number) => boolean])[] = [
  ['frames', 'audio/mpeg', FRAMES, 'whole', atFrames(0)],
  ['an ID3 tag and frames', 'audio/mpeg', Buffer.concat([ID3, FRAMES]), 'whole', atFrames(ID3.length)],
  ['an APE tag and frames', 'audio/mpeg', Buffer.concat([APE, FRAMES]), 'whole', atFrames(APE.length)],
  ['WAV with its size', 'audio/wav', WAV, 'whole', (length) => length >= WAV.length],
  ['WAV without sizes', 'audio/wav', wavOf(0xffff_ffff, 0xffff_ffff), 'unknown', atSamples],
  ['WAV with sizes 36 and 0', 'audio/wav', wavOf(36, 0), 'unknown', atSamples],
  ['WAV with the size of its file only', 'audio/wav', wavOf(WAV.length - 8, 0), 'whole', (n) => n >= WAV.length - 1],
];

async function* pieces(audio: Buffer, length: number) {
  for (let at = 0; at < audio.length; at += length) yield audio.subarray(at, at + length);
}

for (const [what, type, audio, end, mayEnd] of CASES) {
  test(`${what}: each place where audio may end is known`, async (t) => {
    for (const length of [1, 7, 100, MP3_FRAME_BYTES, audio.length]) {
      const follower = audioEnd(type);
      let read = 0;
      for await (const piece of pieces(audio, length)) {
        follower.push(piece);
        read += piece.length;
        t.equal(follower.end, mayEnd(read) ? end : 'cut', `after ${read} bytes, by ${length}`);
      }
    }
  });

  test(`${what}: what is passed on never ends there before the end`, async (t) => {
    for (const length of [1, 7, MP3_FRAME_BYTES, 1000, audio.length]) {
      const passed: Uint8Array[] = [];
      let read = 0;
      async function* source() {
        for await (const piece of pieces(audio, length)) {
          assert.equal(mayEnd(read), false, `by ${length}`);
          yield piece;
        }
        assert.equal(read, audio.length - 1, 'only a byte is held back');
      }
      for await (const piece of holdingBack(source(), type)) {
        passed.push(piece);
        read += piece.length;
      }
      t.strictSame(Buffer.concat(passed), audio);
    }
  });
}

test('bytes of another kind are unknown, never endless', async (t) => {
  const format = Buffer.from([...Buffer.from('RIFF    WAVEfmt '), 1, 0, 0, 0, ...Buffer.alloc(40)]);
  for (const [type, bytes] of [
    ['audio/mpeg', Buffer.from('neither frames nor tags')],
    ['audio/mpeg', Buffer.concat([FRAMES, Buffer.from('TAG')])],
    ['audio/wav', Buffer.from('no RIFF file at all')],
    ['audio/wav', format],
  ] as const) {
    for (const length of [1, bytes.length]) {
      const follower = audioEnd(type);
      for (let at = 0; at < bytes.length; at += length) follower.push(bytes.subarray(at, at + length));
      t.equal(follower.end, 'unknown', `${type} of ${bytes.length} bytes`);
    }
  }
});
