import { readFile } from 'node:fs/promises';

const KILOBITS = {
  3: [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
  2: [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
};
const HERTZ = [44_100, 48_000, 32_000];

/** Length of the MP3 frame there: MPEG 1 (version 3), 2 (version 2) or 2.5 (version 0), Layer III. */
function frameLength(bytes, at) {
  if (at + 4 > bytes.length || bytes[at] !== 0xff) return undefined;
  const version = (bytes[at + 1] >> 3) & 3;
  const kilobits = KILOBITS[version === 3 ? 3 : 2][bytes[at + 2] >> 4];
  const hertz = HERTZ[(bytes[at + 2] >> 2) & 3] / { 3: 1, 2: 2, 0: 4 }[version];
  const padding = (bytes[at + 2] >> 1) & 1;
  return Math.floor(((version === 3 ? 144_000 : 72_000) * kilobits) / hertz) + padding || undefined;
}

/** Whether an MP3 ends with a whole frame. */
function isWholeMp3(bytes) {
  let at = 0;
  if (bytes.toString('latin1', 0, 3) === 'ID3') {
    at = 10 + (bytes[6] << 21) + (bytes[7] << 14) + (bytes[8] << 7) + bytes[9];
  }
  for (let length = frameLength(bytes, at); length !== undefined; length = frameLength(bytes, at)) at += length;
  return at === bytes.length;
}

/** Whether a WAV has as many samples as it says; undefined if it does not say, and only the balance does. */
function isWholeWav(bytes) {
  let at = 12;
  while (bytes.toString('latin1', at, at + 4) !== 'data' && at + 8 <= bytes.length) {
    const size = bytes.readUInt32LE(at + 4);
    at += 8 + size + (size % 2);
  }
  if (at + 8 > bytes.length) return false;
  const size = bytes.readUInt32LE(at + 4);
  return size === 0 || size >= 0x70000000 ? undefined : at + 8 + size <= bytes.length;
}

const [path] = process.argv.slice(2);
const bytes = await readFile(path);
const isWhole = bytes.toString('latin1', 0, 4) === 'RIFF' ? isWholeWav(bytes) : isWholeMp3(bytes);
console.log(path, { true: 'is whole', false: 'is cut off', undefined: 'does not tell: read the balance' }[isWhole]);
process.exitCode = isWhole === false ? 1 : 0;
