import { frameLength } from '../../src/speech/mpeg-frame.ts';

/** MPEG 1 Layer III, 128 kbit/s, 48 kHz, mono, no CRC: a frame is 384 bytes and 24 ms; zeros after its header are silence. */
const FRAME_HEADER = [0xff, 0xfb, 0x94, 0xc4];
export const MP3_FRAME_BYTES = 384;
const FRAME_MS = 24;

/** A header of MPEG 1 Layer III, 128 kbit/s, 44.1 kHz, mono. */
export const MONO_44100 = [0xff, 0xfb, 0x90, 0xc4] as const;

/** Silent frames with this header. */
export function mpegFrames(header: readonly number[], count = 10): Buffer {
  const length = frameLength(Uint8Array.from(header));
  if (length === undefined) throw new Error(`${header} is no header of a frame.`);
  const bytes = Buffer.alloc(count * length);
  for (let frame = 0; frame < count; frame++) bytes.set(header, frame * length);
  return bytes;
}

/** A frame that describes a file, as LAME writes it, with the numbers that are given. */
export function description({ frames, fileBytes }: { frames?: number; fileBytes?: number }): Buffer {
  const frame = mpegFrames(FRAME_HEADER, 1);
  frame.write('Info', 21, 'latin1');
  frame.writeUInt32BE((frames === undefined ? 0 : 1) + (fileBytes === undefined ? 0 : 2), 25);
  let at = 29;
  for (const number of [frames, fileBytes]) if (number !== undefined) at = frame.writeUInt32BE(number, at);
  return frame;
}

const WAV_RATE = 24_000;
export const WAV_HEADER_BYTES = 44;

/** A valid MP3 of at least this many milliseconds (whole frames of 24 ms), 16 bytes a millisecond. */
export function silentMp3(ms: number): Buffer {
  const frames = Math.max(1, Math.ceil(ms / FRAME_MS));
  const bytes = Buffer.alloc(frames * MP3_FRAME_BYTES);
  for (let frame = 0; frame < frames; frame++) bytes.set(FRAME_HEADER, frame * MP3_FRAME_BYTES);
  return bytes;
}

/** A valid WAV of this many milliseconds: PCM, 24 kHz, mono, 16 bit, 48 bytes a millisecond after 44 bytes of header. */
export function silentWav(ms: number): Buffer {
  const dataBytes = Math.round((ms * WAV_RATE) / 1000) * 2;
  const bytes = Buffer.alloc(WAV_HEADER_BYTES + dataBytes);
  bytes.write('RIFF', 0, 'latin1');
  bytes.writeUInt32LE(bytes.length - 8, 4);
  bytes.write('WAVEfmt ', 8, 'latin1');
  bytes.writeUInt32LE(16, 16);
  bytes.writeUInt16LE(1, 20);
  bytes.writeUInt16LE(1, 22);
  bytes.writeUInt32LE(WAV_RATE, 24);
  bytes.writeUInt32LE(WAV_RATE * 2, 28);
  bytes.writeUInt16LE(2, 32);
  bytes.writeUInt16LE(16, 34);
  bytes.write('data', 36, 'latin1');
  bytes.writeUInt32LE(dataBytes, 40);
  return bytes;
}
