#!/usr/bin/env bash
# mediabunny 1.61.0: a streamed WAV is read to its end only if RIFF and data both say 0xFFFFFFFF.
#
# Speech servers that stream a WAV write 0 (or 36 and 0) because they don't know the size yet. ffmpeg and Chromium read on
# to the end; mediabunny finds no samples. 0xFFFFFFFF in the data chunk alone is not enough: the size of RIFF has to be it too.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund mediabunny@1.61.0
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { ALL_FORMATS, BufferSource, Input } from 'mediabunny';

const UNKNOWN = 0xffffffff;

/** One second of a tone: 24,000 Hz, mono, 16 bits. */
function wav(riffSize, dataSize) {
  const bytes = Buffer.alloc(44 + 48000);
  bytes.write('RIFF', 0);
  bytes.writeUInt32LE(riffSize, 4);
  bytes.write('WAVEfmt ', 8);
  bytes.writeUInt32LE(16, 16);
  bytes.writeUInt16LE(1, 20);
  bytes.writeUInt16LE(1, 22);
  bytes.writeUInt32LE(24000, 24);
  bytes.writeUInt32LE(48000, 28);
  bytes.writeUInt16LE(2, 32);
  bytes.writeUInt16LE(16, 34);
  bytes.write('data', 36);
  bytes.writeUInt32LE(dataSize, 40);
  for (let i = 0; i < 24000; i += 1) bytes.writeInt16LE(9000 * Math.sin(i / 9), 44 + 2 * i);
  return bytes;
}

const seconds = (bytes) => new Input({ formats: ALL_FORMATS, source: new BufferSource(bytes) }).computeDuration();
const seen = {
  'real sizes': await seconds(wav(48036, 48000)),
  '36 and 0': await seconds(wav(36, 0)),
  '36 and 0xFFFFFFFF': await seconds(wav(36, UNKNOWN)),
  '0xFFFFFFFF and 0xFFFFFFFF': await seconds(wav(UNKNOWN, UNKNOWN)),
};
console.log(seen);
assert.deepEqual(Object.values(seen), [1, 0, 0, 1]);
JS
node run.mjs
