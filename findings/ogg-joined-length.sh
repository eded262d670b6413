#!/usr/bin/env bash
# mediabunny 1.61.0, music-metadata 12.1.0, ffprobe: six and four seconds of Ogg Opus, joined, are 6, 6 and 4 seconds long.
#
# RFC 3533 allows Ogg files to be joined byte by byte, which invites a speech service to answer in pieces, and ffmpeg plays
# all ten seconds. But mediabunny gives 300 of the 500 packets and then the end, so what it converts is cut without an error;
# music-metadata, also with `duration: true`, stops there too; and ffprobe (N-66595 here, 5.1 does the same) names the length
# of the last piece, although it counts 500 packets. Write one stream, or join after decoding.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund mediabunny@1.61.0 music-metadata@12.1.0 opusscript@0.0.8 \
  @ffprobe-installer/linux-x64@5.2.0
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import * as media from 'mediabunny';
import { parseFile } from 'music-metadata';
import OpusScript from 'opusscript';

/** A tone, 50 packets a second. */
async function record(seconds) {
  const encoder = new OpusScript(48000, 2);
  const output = new media.Output({ format: new media.OggOutputFormat(), target: new media.BufferTarget() });
  const track = new media.EncodedAudioPacketSource('opus');
  output.addAudioTrack(track);
  await output.start();
  const description = Buffer.from('4f707573486561640102380180bb0000000000', 'hex'); // OpusHead: two channels, 48,000 Hz
  const metadata = { decoderConfig: { codec: 'opus', sampleRate: 48000, numberOfChannels: 2, description } };
  for (let packet = 0; packet < 50 * seconds; packet += 1) {
    const pcm = Int16Array.from({ length: 1920 }, (_, i) => 9000 * Math.sin((packet * 960 + (i >> 1)) / 17));
    const bytes = new Uint8Array(encoder.encode(Buffer.from(pcm.buffer), 960));
    await track.add(new media.EncodedPacket(bytes, 'key', packet / 50, 0.02), metadata);
  }
  encoder.delete();
  await output.finalize();
  return Buffer.from(output.target.buffer);
}

const pieces = [await record(6), await record(4)];
// Each piece is a stream of its own, as the format asks.
assert.notEqual(pieces[0].readUInt32LE(14), pieces[1].readUInt32LE(14));
writeFileSync('joined.ogg', Buffer.concat(pieces));

const probe = (...entries) =>
  Number(
    execFileSync('node_modules/@ffprobe-installer/linux-x64/ffprobe', [
      ...['-v', 'error', '-count_packets', '-show_entries', ...entries, '-of', 'csv=p=0', 'joined.ogg'],
    ]),
  );
async function count(packets) {
  let counted = 0;
  for await (const _ of packets) counted += 1;
  return counted;
}

const input = new media.Input({ formats: media.ALL_FORMATS, source: new media.FilePathSource('joined.ogg') });
const packets = new media.EncodedPacketSink(await input.getPrimaryAudioTrack()).packets();
const seen = {
  mediabunny: { seconds: Math.round(await input.computeDuration()), packets: await count(packets) },
  'music-metadata': { seconds: Math.round((await parseFile('joined.ogg', { duration: true })).format.duration) },
  ffprobe: { seconds: Math.round(probe('format=duration')), packets: probe('stream=nb_read_packets') },
};
console.table(seen);
assert.deepEqual(seen, {
  mediabunny: { seconds: 6, packets: 300 },
  'music-metadata': { seconds: 6 },
  ffprobe: { seconds: 4, packets: 500 },
});
JS
node run.mjs
