#!/usr/bin/env bash
# mpg123-decoder 1.0.3: one decode() of an MP3 that changes its sampling rate names the last rate for all samples.
#
# One second at 24,000 Hz followed by one second at 44,100 Hz comes back as 71,424 samples "at 44,100 Hz", which is 1.6
# seconds: the first part plays nearly twice as fast, and `errors` is empty. Cut the input where the frame header changes.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund mpg123-decoder@1.0.3 wasm-media-encoders@0.7.0
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { MPEGDecoder } from 'mpg123-decoder';
import { createMp3Encoder } from 'wasm-media-encoders';

async function second(sampleRate) {
  const encoder = await createMp3Encoder();
  encoder.configure({ sampleRate, outputSampleRate: sampleRate, bitrate: 64, channels: 1 });
  const tone = Float32Array.from({ length: sampleRate }, (_, i) => 0.3 * Math.sin((2 * Math.PI * 440 * i) / sampleRate));
  const audio = Buffer.from(encoder.encode([tone]));
  return Buffer.concat([audio, encoder.finalize()]);
}

async function decode(mp3) {
  const decoder = new MPEGDecoder();
  await decoder.ready;
  const { sampleRate, samplesDecoded, errors } = decoder.decode(mp3);
  decoder.free();
  return { sampleRate, samples: samplesDecoded, errors: errors.length };
}

const slow = await second(24000);
const fast = await second(44100);
const seen = { slow: await decode(slow), fast: await decode(fast), joined: await decode(Buffer.concat([slow, fast])) };
console.log(seen);
assert.equal(seen.slow.sampleRate, 24000);
assert.equal(seen.joined.sampleRate, 44100, 'one rate for all');
assert.equal(seen.joined.samples, seen.slow.samples + seen.fast.samples, 'nothing is resampled');
assert.equal(seen.joined.errors, 0);
JS
node run.mjs
