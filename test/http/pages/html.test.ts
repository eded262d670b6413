import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { html, raw } from '../../../src/http/pages/html.ts';

test('an interpolated value is escaped in text and in quoted attributes', async (t) => {
  const value = `<a href="x" id='y'>&amp;</a>`;
  t.equal(
    String(html`<p title="${value}">${value}</p>`),
    '<p title="&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;amp;&lt;/a&gt;">' +
      '&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;amp;&lt;/a&gt;</p>',
  );
});

test('no interpolated value produces markup', async () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (value) => {
      const inner = String(html`<i>${value}</i>`).slice('<i>'.length, -'</i>'.length);
      assert.doesNotMatch(inner, /[<>"']|&(?!(amp|lt|gt|quot|#39);)/);
    }),
  );
});

test('a nested fragment is not escaped again', async (t) => {
  const name = html`<b>${'R&D'}</b>`;
  t.equal(String(html`<p>${name} ${raw('<br>')} ${3}</p>`), '<p><b>R&amp;D</b> <br> 3</p>');
});

test('an object that only looks like a fragment is escaped', async (t) => {
  const impostor = { toString: () => '<script>' } as unknown as string;
  t.equal(String(html`${impostor}`), '&lt;script&gt;');
});

test('a template may contain backslashes and dollar signs', async (t) => {
  t.equal(String(html`\u00e9 \\ $${5}`), 'é \\ $5');
});
