#!/usr/bin/env bash
# @langchain/textsplitters 1.0.2: a text without spaces is cut inside an emoji, and the speech server gets half of it.
#
# RecursiveCharacterTextSplitter is often put before speech, to keep to the 4,096 characters of a request. Where no
# space is near, its last separator is the empty text, which splits by UTF-16 code units: rows of emoji, and characters
# beyond U+FFFF of languages without spaces, are cut in two. JSON.stringify writes the half as \ud83d, which strict
# servers answer with 400 and others speak as U+FFFD. The pieces joined again are the text, so a test by joining does
# not see it. isWellFormed() does; `[...text]` or Intl.Segmenter cuts between characters.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund @langchain/textsplitters@1.0.2 @langchain/core@1.4.0
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { RecursiveCharacterTextSplitter } from '@langchain/textsplitters';

const piecesOf = (text, chunkSize) =>
  new RecursiveCharacterTextSplitter({ chunkSize, chunkOverlap: 0 }).splitText(text);

const emoji = await piecesOf('Yes!😀😀😀', 7);
console.log(JSON.stringify(emoji));
assert.deepEqual(emoji, ['Yes!😀\ud83d', '\ude00😀']);
assert.equal(emoji.join(''), 'Yes!😀😀😀');
assert.equal(Buffer.from(emoji[0]).toString(), 'Yes!😀\ufffd');

const han = await piecesOf('𠮷野家で食べる𩸽を買う', 9);
console.log(JSON.stringify(han));
assert.deepEqual(han.map((piece) => piece.isWellFormed()), [false, false]);

const spaced = await piecesOf('Yes! 😀 😀 😀', 7);
console.log(JSON.stringify(spaced));
assert.ok(spaced.every((piece) => piece.isWellFormed()));
JS
node run.mjs
