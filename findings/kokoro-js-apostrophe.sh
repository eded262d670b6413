#!/usr/bin/env bash
# kokoro-js 1.2.1: an inch mark or a plural's apostrophe makes all later sentences one piece, whose end is not spoken.
#
# TextSplitterStream, which feeds tts.stream(), takes `"`, `'` and `(` for the start of a quotation and does not split
# before its end. `The dogs' food`, `6" wide` and `:(` have no end, and a new paragraph is none. The model takes 510
# phonemes at most, and `truncation: true` cuts off the rest of the piece: a listener hears half a minute of a long
# text, without an error. Texts with ’ and ″ are split as expected. Replace the other marks, or call flush() after each
# paragraph. This runs the build for browsers, which needs no dependencies, and no model.
set -euo pipefail
cd "$(mktemp -d)"
npm pack --silent kokoro-js@1.2.1 > /dev/null
tar -xzf kokoro-js-1.2.1.tgz
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { KokoroTTS, TextSplitterStream } from './package/dist/kokoro.web.js';

let calls;
class SilentKokoro extends KokoroTTS {
  async generate_from_ids() {}
}
const tts = new SilentKokoro(null, (phonemes, { truncation }) => {
  calls.push({ phonemes: phonemes.length, truncation });
  return {};
});

/** Streams a text and 40 more sentences in two paragraphs, as the package's README does it. */
async function stream(start) {
  calls = [];
  const splitter = new TextSplitterStream();
  const more = 'They live in a house by the sea. '.repeat(20);
  for (const word of `${start} ${more}\n\n${more}`.match(/\s*\S+/g)) splitter.push(word);
  splitter.close();
  for await (const _ of tts.stream(splitter));
  const longest = Math.max(...calls.map(({ phonemes }) => phonemes));
  return { pieces: calls.length, longest, truncation: calls[0].truncation };
}

const seen = {
  "This is the dog's food.": await stream("This is the dog's food."),
  "This is the dogs' food.": await stream("This is the dogs' food."),
  'This is the dogs’ food.': await stream('This is the dogs’ food.'),
  'This pipe is 6" wide.': await stream('This pipe is 6" wide.'),
  'This pipe is 6″ wide.': await stream('This pipe is 6″ wide.'),
  'I am sad :( today.': await stream('I am sad :( today.'),
};
console.table(seen);
const most = statSync('package/voices/af_heart.bin').size / (256 * Float32Array.BYTES_PER_ELEMENT);
console.log('a voice has a style for pieces of up to', most, 'phonemes');
assert.equal(most, 510);
assert.deepEqual(Object.values(seen).map(({ pieces }) => pieces), [41, 1, 41, 1, 41, 1]);
for (const { pieces, longest, truncation } of Object.values(seen)) {
  assert.equal(longest > most, pieces === 1);
  assert.equal(truncation, true);
}
JS
node run.mjs
