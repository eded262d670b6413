import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { chaptersOf, cleanText } from '../../src/lib/clean-text.ts';

const MARKDOWN: readonly (readonly [what: string, text: string, spoken: string])[] = [
  ['a heading ends with a pause', '# The *title*\n\nA text', 'The title.\nA text'],
  ['a heading that asks keeps its mark', '## Why?', 'Why?'],
  [
    'emphasis is left out, and code in a line is read',
    'Run **all** of _it_: ~~no~~ `npm test`',
    'Run all of it: no npm test',
  ],
  ['a link is read by its text', 'See [the docs](https://a.example/x "t"), [a *b*][1]\n\n[1]: /y', 'See the docs, a b'],
  [
    'an address is read as its host',
    'At https://a.example/long?q=1 or <https://b.example/x>',
    'At a.example or b.example',
  ],
  ['an image is read by its description', 'Here: ![A cat](cat.png)', 'Here: A cat'],
  ['code blocks are left out', 'One\n\n```js\nconst x = 1;\n```\n\n    indented\n\nTwo', 'One\nTwo'],
  ['a table is read row by row', '| a | b |\n|---|---|\n| 1 | *2* |\n| 3 |', 'a, b.\n1, 2.\n3.'],
  ['an empty item adds nothing', 'One\n\n-\n- \n\n| a |\n|---|\n|  |', 'One\na.'],
  ['each item of a list is a sentence', '1. One\n2. Two!\n   - nested', 'One.\nTwo!\nnested.'],
  ['lines of a paragraph are one line', 'One\ntwo  \nthree', 'One two\nthree'],
  ['quotes, rules, entities and HTML', '> Q &amp; A\n\n---\n<b>1</b> &lt; 2', 'Q & A\n1 < 2'],
  ['emoji are kept', 'Hi 🎉!', 'Hi 🎉!'],
];

for (const [what, text, spoken] of MARKDOWN) {
  test(`Markdown: ${what}`, async (t) => {
    t.equal(cleanText(text, { format: 'markdown', emoji: true }), spoken);
  });
}

const CHAPTERS: readonly (readonly [what: string, text: string, chapters: readonly (readonly string[])[]])[] = [
  ['a text without headings is one chapter', 'One\n\nTwo', [['', 'One\nTwo']]],
  [
    'headings of one level begin chapters, also behind a preface',
    'Preface\n\n# *One*?\n\na\n\n# Two\n\n## Two b\n\nb',
    [
      ['', 'Preface'],
      ['One?', 'One?\na'],
      ['Two', 'Two.\nTwo b.\nb'],
    ],
  ],
  [
    'a single heading above them is the title of the whole',
    '# Book\n\nBy me\n\n## One\n\na\n\n### c\n\n## Two\n\n### d\n\nb',
    [
      ['Book', 'Book.\nBy me'],
      ['One', 'One.\na\nc.'],
      ['Two', 'Two.\nd.\nb'],
    ],
  ],
  [
    'a heading of several lines has one title',
    '<h2>I.<br/>The <i>end</i></h2>\n\na',
    [['I. The end', 'I.\nThe end.\na']],
  ],
  ['a heading without words begins none', '# One\n\na\n\n# ![](x.png)\n\nb', [['One', 'One.\na\nb']]],
];

for (const [what, text, chapters] of CHAPTERS) {
  test(`chapters: ${what}`, async (t) => {
    const found = chaptersOf(text, { format: 'markdown', emoji: true });
    t.strictSame(
      found.map((chapter) => [chapter.title, chapter.text]),
      chapters,
    );
    t.equal(found.map((chapter) => chapter.text).join('\n'), cleanText(text, { format: 'markdown', emoji: true }));
  });
}

test('chapters: a text that is not cleaned is one, as it is', async (t) => {
  t.strictSame(chaptersOf('# a\n# b', { format: 'off', emoji: true }), [{ title: '', text: '# a\n# b' }]);
});

test('HTML: head, script, style and code blocks are left out, also where tags are not closed', async (t) => {
  const page = `<!doctype html><html><head><title>T</title><style>p { color: red }</style></head><body>
    <h1>Hi &amp; bye</h1><p>One<br>two <a href="/x">three</a><script>alert(1)</script><p>four
    <table><tr><th>A<th>B<tr><td>1<td>2</table> 1 &lt; 2<pre>code</pre><img alt="A cat"><img alt=""></body></html>`;
  const spoken = 'Hi & bye.\nOne\ntwo three\nfour\nA, B.\n1, 2.\n1 < 2\nA cat';
  t.equal(cleanText(page, { format: 'html', emoji: true }), spoken);
});

test('XHTML: an element that closes itself hides nothing after it', async (t) => {
  const page =
    '<?xml version="1.0"?><html><head><title/><script src="x"/></head><body><p>One<br/>two</p><pre/>three</body></html>';
  t.equal(cleanText(page, { format: 'html', emoji: true }), 'One\ntwo\nthree');
});

test('emoji are left out on request, in any format; digits and signs stay', async (t) => {
  const text = '🎉 Hi 👩🏽‍🚀, 1️⃣ of 3 © #1 🇩🇪.\n🎉\nBye';
  for (const format of ['off', 'markdown'] as const) {
    t.equal(cleanText(text, { format, emoji: false }).replaceAll('\n', ' '), 'Hi, of 3 © #1. Bye', format);
  }
});

test('a text without markup stays as it is', async (t) => {
  const text = ' a * b_c <d> 🎉 \n\n# e ';
  t.equal(cleanText(text, { format: 'off', emoji: true }), text);
});

test('no text makes cleaning fail', async () => {
  fc.assert(
    fc.property(
      fc.string({ unit: 'binary' }),
      fc.constantFrom('markdown' as const, 'html' as const),
      (text, format) => {
        assert.equal(typeof cleanText(text, { format, emoji: false }), 'string');
      },
    ),
  );
});
