#!/usr/bin/env bash
# s3rver 3.7.1: `Range: bytes=0-0` returns the whole object as 206, and `bytes=-1` returns two bytes from the front.
#
# A range that ends at byte 0 loses its end, and one that counts from the end is read as one that starts at 0. Content-Range
# names what is really sent, so a client that compares only the status, or only the start of the range, hands on the wrong
# bytes. Compare start, end and size.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund s3rver@3.7.1 @aws-sdk/client-s3@3.1169.0
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { mkdtemp } from 'node:fs/promises';
import { GetObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import S3rver from 's3rver';

const directory = await mkdtemp(`${process.cwd()}/objects-`);
const server = new S3rver({ port: 0, address: '127.0.0.1', silent: true, directory, configureBuckets: [{ name: 'audio' }] });
const { port } = await server.run();
const client = new S3Client({
  endpoint: `http://127.0.0.1:${port}`,
  region: 'us-east-1',
  forcePathStyle: true,
  credentials: { accessKeyId: 'S3RVER', secretAccessKey: 'S3RVER' },
});
const object = { Bucket: 'audio', Key: 'digits' };
await client.send(new PutObjectCommand({ ...object, Body: Buffer.from('0123456789') }));
const seen = {};
for (const Range of ['bytes=0-0', 'bytes=0-1', 'bytes=5-', 'bytes=-1']) {
  const { $metadata, ContentRange, Body } = await client.send(new GetObjectCommand({ ...object, Range }));
  seen[Range] = `${$metadata.httpStatusCode} ${ContentRange} ${await Body.transformToString()}`;
}
client.destroy();
await server.close();
console.log(seen);
assert.deepEqual(seen, {
  'bytes=0-0': '206 bytes 0-9/10 0123456789',
  'bytes=0-1': '206 bytes 0-1/10 01',
  'bytes=5-': '206 bytes 5-9/10 56789',
  'bytes=-1': '206 bytes 0-1/10 01',
});
JS
NODE_NO_WARNINGS=1 node run.mjs
