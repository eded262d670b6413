#!/usr/bin/env bash
# node-webvtt 1.9.4, subtitle 4.2.2, subsrt-ts 2.1.2: escaped captions are shown escaped, and long ones lose their hours.
#
# WebVTT writes & and < of a spoken text as &amp; and &lt;. None of the three decodes them: whoever makes SRT of such a
# file, where they mean nothing, shows "Q&amp;A" to viewers. And hours have two digits or more in WebVTT: subsrt-ts
# reads no cue from 100 hours on and says nothing; subtitle writes a cue after 24 hours as 00:00:00.86400500, with the
# day in eight digits of milliseconds, and does not read such a file again. Decode the text once after parsing, and
# count the cues of long books.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund node-webvtt@1.9.4 subtitle@4.2.2 subsrt-ts@2.1.2
cat > run.cjs <<'JS'
const assert = require('node:assert/strict');
const webvtt = require('node-webvtt');
const { parseSync, stringifySync } = require('subtitle');
const { convert, parse } = require('subsrt-ts');

const escaped = 'WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nQ&amp;A: 1 &lt; 2\n';
const texts = {
  'node-webvtt': webvtt.parse(escaped).cues[0].text,
  subtitle: parseSync(escaped).at(-1).data.text,
  'subsrt-ts': parse(escaped).at(-1).text.trim(),
};
console.log(texts);
for (const text of Object.values(texts)) assert.equal(text, 'Q&amp;A: 1 &lt; 2');
const srt = stringifySync(parseSync(escaped), { format: 'SRT' });
console.log(srt);
assert.match(srt, /^1\n00:00:00,000 --> 00:00:01,000\nQ&amp;A/);
assert.match(convert(escaped, { format: 'srt' }), /Q&amp;A/);

const long = 'WEBVTT\n\n99:59:59.000 --> 99:59:59.500\nA\n\n100:00:00.000 --> 100:00:01.000\nB\n';
const counts = {
  'node-webvtt': webvtt.parse(long).cues.length,
  subtitle: parseSync(long).filter(({ type }) => type === 'cue').length,
  'subsrt-ts': parse(long).filter(({ type }) => type === 'caption').length,
};
console.log('cues of two:', counts);
assert.deepEqual(counts, { 'node-webvtt': 2, subtitle: 2, 'subsrt-ts': 1 });

const day = 24 * 60 * 60 * 1000;
const written = stringifySync([{ type: 'cue', data: { start: day + 500, end: day + 1000, text: 'A' } }], {
  format: 'WebVTT',
});
console.log(written);
assert.match(written, /\n00:00:00\.86400500 --> 00:00:01\.86400000\n/);
assert.throws(() => parseSync(written), /expected timestamp/);
JS
node run.cjs
