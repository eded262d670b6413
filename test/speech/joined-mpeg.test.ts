import { test } from 'tap';
import { describeSegments, segmentAudio, speakInSegments } from '../../src/speech/joined-mpeg.ts';
import { xingOffset } from '../../src/speech/mpeg-frame.ts';
import type { Speech } from '../../src/speech/provider.ts';
import { MONO_44100, MP3_FRAME_BYTES, mpegFrames, silentMp3 } from '../support/silent-audio.ts';
import { NEVER } from './compatible-upstream.ts';

const silent = (frames: number): Buffer => silentMp3(frames * 24);

/** Frames whose side information tells of sound. */
function sounding(frames: number): Buffer {
  const bytes = silent(frames);
  for (let at = 0; at < bytes.length; at += MP3_FRAME_BYTES) bytes[at + 7] = 0xff;
  return bytes;
}

/** Frames of which the first needs bytes of those before it. */
function dependent(frames: number): Buffer {
  const bytes = sounding(frames);
  bytes[4] = 1;
  return bytes;
}

const MPEG2 = [0xff, 0xf3, 0x84, 0xc4];

const rows: [name: string, segment: Buffer, frames: number, kept: number][] = [
  ['sound to its end', sounding(5), 5, 5],
  ['a silent frame', Buffer.concat([sounding(5), silent(1)]), 6, 5],
  ['more silent frames than the delay has', Buffer.concat([sounding(5), silent(4)]), 9, 8],
  ['silence at its beginning', Buffer.concat([silent(4), sounding(5)]), 9, 9],
  ['the bit reservoir of an earlier frame', Buffer.concat([dependent(5), silent(1)]), 6, 6],
  ['short frames', mpegFrames(MPEG2, 9), 9, 7],
];
for (const [name, segment, frames, kept] of rows) {
  test(`a segment with ${name}: only silence as long as the next delay goes`, async (t) => {
    t.strictSame(
      [segmentAudio(segment, true).frames, segmentAudio(segment, true).bytes.length],
      [frames, segment.length],
    );
    const { frames: count, bytes } = segmentAudio(segment, false);
    t.equal(count, kept);
    t.ok(segment.subarray(0, bytes.length).equals(bytes));
    t.equal(bytes.length, (segment.length / frames) * kept);
  });
}

async function join(...segments: readonly Buffer[]): Promise<Buffer> {
  const rest = [...segments];
  const speak = async (): Promise<Speech> => {
    const segment = rest.shift() as Buffer;
    // In pieces that end within frames.
    const pieces = Array.from({ length: Math.ceil(segment.length / 500) }, (_, piece) => piece * 500);
    const audio = (async function* () {
      for (const at of pieces) yield segment.subarray(at, at + 500);
    })();
    return { mimeType: 'audio/mpeg', audio };
  };
  const text = segments.map((_, number) => `Number ${number}.`).join(' ');
  const speech = await speakInSegments(text, { limit: 10, isForListener: false, speak }, NEVER);
  const chunks: Uint8Array[] = [];
  for await (const chunk of speech.audio) chunks.push(chunk);
  return Buffer.concat(chunks);
}

test('a stream leaves silence out before a segment only if it needs no earlier bytes', async (t) => {
  const [one, other] = [Buffer.concat([sounding(5), silent(2)]), sounding(3)];
  t.strictSame(await join(one, other), Buffer.concat([sounding(5), silent(1), other]));
  t.strictSame(await join(one, dependent(3)), Buffer.concat([one, dependent(3)]));
  t.strictSame(await join(other, one), Buffer.concat([other, one]), 'what the last one ends with stays');
});

test('segments of another rate or number of channels are not joined', async (t) => {
  await t.rejects(join(sounding(3), mpegFrames(MONO_44100)), /cannot be joined/);
  await t.rejects(join(sounding(3), mpegFrames([0xff, 0xfb, 0x94, 0x04])), /cannot be joined/);
});

test('the frame in front of joined segments tells frames, bytes and positions', async (t) => {
  const header = sounding(1).subarray(0, 4);
  const frame = Buffer.from(
    describeSegments([
      { frames: 300, sizeBytes: 300 * 100, header },
      { frames: 100, sizeBytes: 100 * 700, header },
    ]),
  );
  const at = xingOffset(frame);
  const total = frame.length + 100_000;
  t.equal(frame.toString('latin1', at, at + 4), 'Xing');
  t.strictSame([frame.readUInt32BE(at + 8), frame.readUInt32BE(at + 12)], [400, total]);
  const positions = [...frame.subarray(at + 16, at + 116)];
  t.strictSame(
    positions,
    positions.toSorted((a, b) => a - b),
  );
  const placeOf = (bytes: number) => Math.floor((256 * (frame.length + bytes)) / total);
  t.strictSame([positions[0], positions[50], positions[75], positions[99]], [0, 20_000, 30_000, 97_200].map(placeOf));
});
