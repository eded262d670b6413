#!/usr/bin/env bash
# wasm-media-encoders 0.7.0: the MP3 has a lower sampling rate than the samples unless outputSampleRate is given.
#
# LAME picks a rate that suits the bit rate: samples of 24,000 Hz at 32 kbit/s become an MP3 of 22,050 Hz, samples of
# 44,100 Hz at 48 kbit/s one of 32,000 Hz. Nothing says so. It matters where pieces are joined: a change of rate inside an
# MP3 ends playback in several players.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund wasm-media-encoders@0.7.0
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { createMp3Encoder } from 'wasm-media-encoders';

/** Sampling rate in the header of the first frame (ISO/IEC 11172-3 and 13818-3). */
function rateOf(mp3) {
  const at = mp3.findIndex((byte, i) => byte === 0xff && (mp3[i + 1] & 0xe0) === 0xe0);
  const rates = { 3: [44100, 48000, 32000], 2: [22050, 24000, 16000], 0: [11025, 12000, 8000] };
  return rates[(mp3[at + 1] >> 3) & 3][(mp3[at + 2] >> 2) & 3];
}

async function encode(sampleRate, bitrate, options = {}) {
  const encoder = await createMp3Encoder();
  encoder.configure({ sampleRate, bitrate, channels: 1, ...options });
  const tone = Float32Array.from({ length: sampleRate }, (_, i) => 0.3 * Math.sin((2 * Math.PI * 440 * i) / sampleRate));
  const audio = Buffer.from(encoder.encode([tone]));
  return rateOf(Buffer.concat([audio, encoder.finalize()]));
}

const seen = {
  '24000 Hz, 32 kbit/s': await encode(24000, 32),
  '24000 Hz, 64 kbit/s': await encode(24000, 64),
  '44100 Hz, 48 kbit/s': await encode(44100, 48),
  '24000 Hz, 32 kbit/s, outputSampleRate 24000': await encode(24000, 32, { outputSampleRate: 24000 }),
};
console.log(seen);
assert.deepEqual(Object.values(seen), [22050, 24000, 32000, 24000]);
JS
node run.mjs
