#!/usr/bin/env bash
# sonos 1.14.3: GenerateCustomMetadata returns no XML: its <item> is missing, and & of a URL stays as it is.
#
# The helper makes the DIDL-Lite that a speaker shows beside a track of one's own. A conditional there binds the whole
# sum, so the opening tag of the item is never written: ` parentID="..."` follows <DIDL-Lite> as text, with "undefined"
# when no parent was given, and `</item>` closes nothing. URL, title and artist are not escaped either, so a signed URL
# or "Q&A" breaks even a repaired one. Write the few lines of DIDL-Lite yourself, or give the URL alone.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund sonos@1.14.3 fast-xml-parser@5.2.5
cat > run.cjs <<'JS'
const assert = require('node:assert/strict');
const { XMLValidator } = require('fast-xml-parser');
const { Helpers } = require('sonos');

const url = 'https://speech.example/1.mp3';
const withParent = Helpers.GenerateCustomMetadata(url, '1', '00:00:09', 'News', '', '', '', 'A:TRACKS');
const withoutParent = Helpers.GenerateCustomMetadata(url, '1', '00:00:09', 'News');
for (const xml of [withParent, withoutParent]) {
  const { err } = XMLValidator.validate(xml);
  console.log(xml.slice(xml.indexOf('>') + 1), '\n ', err.msg);
  assert.doesNotMatch(xml, /<item/);
  assert.equal(err.code, 'InvalidTag');
}
assert.match(withParent, /DIDL-Lite\/"> parentID="A:TRACKS"><res /);
assert.match(withoutParent, /DIDL-Lite\/"> parentID="undefined"><res /);

const signed = Helpers.GenerateCustomMetadata(`${url}?key=1&sig=2`, '1', '00:00:09', 'Q&A');
assert.match(signed, /key=1&sig=2<.*<dc:title>Q&A</);
JS
node run.cjs
