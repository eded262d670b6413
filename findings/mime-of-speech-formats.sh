#!/usr/bin/env bash
# mime 4.1.2, mime-types 3.0.2: the file extension of a speech answer is odd or missing, and FLAC does not go both ways.
#
# Code that saves an answer by its content type gets `mpga` for audio/mpeg, `oga` for audio/ogg and `adts` for audio/aac,
# which many players and upload forms do not accept, and nothing (`null` or `false`, so a file `speech.false`) for
# audio/flac (RFC 9639), audio/opus (RFC 7587) and audio/L16 (RFC 2586). Both libraries read mime-db, where FLAC is only
# audio/x-flac: so what they say of `x.flac` is a type whose registered name they do not know. Keep a table of your own
# for the six formats of the speech API.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund mime@4.1.2 mime-types@3.0.2
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import mime from 'mime';
import mimeTypes from 'mime-types';

const types = ['audio/mpeg', 'audio/ogg', 'audio/aac', 'audio/wav', 'audio/flac', 'audio/opus', 'audio/L16'];
const seen = types.map((type) => ({ type, mime: mime.getExtension(type), 'mime-types': mimeTypes.extension(type) }));
console.table(seen);
assert.deepEqual(seen.map((row) => row.mime), ['mpga', 'oga', 'adts', 'wav', null, null, null]);
assert.deepEqual(seen.map((row) => row['mime-types']), ['mpga', 'oga', 'adts', 'wav', false, false, false]);

console.log('x.flac:', mime.getType('x.flac'), mimeTypes.lookup('x.flac'));
assert.equal(mime.getType('x.flac'), 'audio/x-flac');
assert.equal(mimeTypes.lookup('x.flac'), 'audio/x-flac');
// What the extensions stand for is not in doubt.
for (const name of ['x.mp3', 'x.mpga']) assert.equal(mimeTypes.lookup(name), 'audio/mpeg');
JS
node run.mjs
