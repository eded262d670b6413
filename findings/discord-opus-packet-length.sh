#!/usr/bin/env bash
# @discordjs/voice 0.19.2: Ogg or WebM Opus with 60 ms in each packet is played in a third of its time.
#
# Opus is passed on as it is. The player sends one packet each 20 ms and adds 20 to playbackDuration, though the first
# byte of a packet says how long it is, and a packet may have up to 120 ms. Chromium's MediaRecorder writes 60 ms into
# each. There is no error: demuxProbe() looks only at channels and sampling rate and calls such a file ready to be
# played. Encode with 20 ms, or give StreamType.Arbitrary, with which ffmpeg encodes it again.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund @discordjs/voice@0.19.2 mediabunny@1.61.0 opusscript@0.0.8 prism-media@1.3.5
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createReadStream, writeFileSync } from 'node:fs';
import * as voice from '@discordjs/voice';
import * as media from 'mediabunny';
import OpusScript from 'opusscript';

/** Three seconds of a tone, written to a file. */
async function record(name, packetMs) {
  const format = name.endsWith('.ogg') ? new media.OggOutputFormat() : new media.WebMOutputFormat();
  const samples = 48 * packetMs;
  const encoder = new OpusScript(48000, 2);
  const output = new media.Output({ format, target: new media.BufferTarget() });
  const track = new media.EncodedAudioPacketSource('opus');
  output.addAudioTrack(track);
  await output.start();
  const description = Buffer.from('4f707573486561640102380180bb0000000000', 'hex'); // OpusHead: two channels, 48,000 Hz
  const metadata = { decoderConfig: { codec: 'opus', sampleRate: 48000, numberOfChannels: 2, description } };
  for (let packet = 0; packet < 3000 / packetMs; packet += 1) {
    const pcm = Int16Array.from({ length: 2 * samples }, (_, i) => 9000 * Math.sin((packet * samples + (i >> 1)) / 17));
    const bytes = new Uint8Array(encoder.encode(Buffer.from(pcm.buffer), samples));
    await track.add(new media.EncodedPacket(bytes, 'key', (packet * packetMs) / 1000, packetMs / 1000), metadata);
  }
  encoder.delete();
  await output.finalize();
  writeFileSync(name, Buffer.from(output.target.buffer));
}

/** Plays a file without a connection. */
async function play(name) {
  const { stream, type } = await voice.demuxProbe(createReadStream(name));
  const resource = voice.createAudioResource(stream, { inputType: type });
  const player = voice.createAudioPlayer({ behaviors: { noSubscriber: voice.NoSubscriberBehavior.Play } });
  player.play(resource);
  const start = Date.now();
  await once(player, voice.AudioPlayerStatus.Idle);
  return { type, playbackDuration: resource.playbackDuration, seconds: (Date.now() - start) / 1000 };
}

const seen = {};
for (const [name, packetMs] of Object.entries({ '20ms.ogg': 20, '40ms.ogg': 40, '60ms.ogg': 60, '60ms.webm': 60 })) {
  await record(name, packetMs);
  const input = new media.Input({ formats: media.ALL_FORMATS, source: new media.FilePathSource(name) });
  seen[name] = { real: await input.computeDuration(), ...(await play(name)) };
}
console.table(seen);
const { OggOpus, WebmOpus } = voice.StreamType;
assert.deepEqual(Object.values(seen).map(({ type }) => type), [OggOpus, OggOpus, OggOpus, WebmOpus]);
assert.deepEqual(Object.values(seen).map(({ real }) => Math.round(real)), [3, 3, 3, 3]);
assert.deepEqual(Object.values(seen).map(({ playbackDuration }) => playbackDuration), [3000, 1500, 1000, 1000]);
JS
node run.mjs
