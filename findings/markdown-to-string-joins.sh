#!/usr/bin/env bash
# mdast-util-to-string 4.0.0: the plain text of Markdown has no space between paragraphs, items and cells.
#
# It joins the values of all leaves, whatever block they are in: "# News\n\nIt rains." is `NewsIt rains.`, a list of
# `one` and `two` is `onetwo`, and a break at the end of a line joins its words. Spoken, that is a new word and a
# sentence without its pause; a count of words is too low. It is meant for one heading or one paragraph: call it for
# each block and join these yourself. strip-markdown keeps blocks, as it returns a tree.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund mdast-util-to-string@4.0.0 mdast-util-from-markdown@2.1.0 \
  mdast-util-gfm-table@2.0.0 micromark-extension-gfm-table@2.1.1
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { fromMarkdown } from 'mdast-util-from-markdown';
import { gfmTableFromMarkdown } from 'mdast-util-gfm-table';
import { toString } from 'mdast-util-to-string';
import { gfmTable } from 'micromark-extension-gfm-table';

const treeOf = (markdown) =>
  fromMarkdown(markdown, { extensions: [gfmTable()], mdastExtensions: [gfmTableFromMarkdown()] });
const seen = {
  blocks: toString(treeOf('# News\n\nIt rains.\n\nIt is cold.')),
  list: toString(treeOf('- one\n- two')),
  table: toString(treeOf('| Oslo | Bergen |\n| --- | --- |\n| 3 | 4 |')),
  break: toString(treeOf('Hello  \nworld')),
  line: toString(treeOf('Hello\nworld')),
  'each block': treeOf('# News\n\nIt rains.').children.map((block) => toString(block)).join('\n'),
};
console.log(seen);
assert.deepEqual(seen, {
  blocks: 'NewsIt rains.It is cold.',
  list: 'onetwo',
  table: 'OsloBergen34',
  break: 'Helloworld',
  line: 'Hello\nworld',
  'each block': 'News\nIt rains.',
});
JS
node run.mjs
