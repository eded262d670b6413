import { createHash } from 'node:crypto';
import { type Html, html, raw } from './html.ts';

const STYLE = `
:root { color-scheme: light dark; --ink: #14213d; --paper: #fbfaf7; --card: #fff; --line: #dcd8cf; --accent: #0f5c4d; --accent-ink: #fff; --muted: #5b6270; --warn: #9f1239; }
@media (prefers-color-scheme: dark) { :root { --ink: #eceff4; --paper: #12161c; --card: #1b212a; --line: #343c48; --accent: #6fd3bb; --accent-ink: #0b1512; --muted: #a7b0bd; --warn: #fda4af; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1.5rem 1rem; background: var(--paper); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
main { max-width: 28rem; margin: 0 auto; padding: 1.5rem; background: var(--card); border: 1px solid var(--line); border-radius: 1rem; }
h1 { margin: 0 0 .75rem; font-size: 1.4rem; line-height: 1.25; }
p { margin: .75rem 0; }
h2 { margin: 1.5rem 0 .5rem; font-size: 1.1rem; }
ul { margin: .5rem 0; padding-left: 1.1rem; }
li { margin: .5rem 0; }
li small { display: block; color: var(--muted); overflow-wrap: anywhere; }
dl { margin: 1rem 0; }
dt { color: var(--muted); font-size: .875rem; }
dd { margin: 0 0 .75rem; font-weight: 600; overflow-wrap: anywhere; }
dd.amount { font-size: 1.75rem; line-height: 1.2; }
code, pre { font-family: ui-monospace, monospace; font-size: .875rem; }
pre { padding: .75rem; border: 1px solid var(--line); border-radius: .5rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
label { display: block; margin: 1rem 0 .25rem; font-weight: 600; }
input { width: 100%; min-height: 2.75rem; padding: .7rem .8rem; font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--muted); border-radius: .5rem; }
input.id { padding-inline: .4rem; font: clamp(.6rem, 3.2vw, .875rem)/1.5 ui-monospace, monospace; }
input[aria-invalid] { border-color: var(--warn); }
fieldset { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .5rem; margin: 1rem 0; padding: 0; border: 0; }
legend { padding: 0 0 .5rem; color: var(--muted); font-size: .875rem; }
.choice { display: flex; flex-wrap: wrap; align-items: center; gap: .6rem; min-height: 2.75rem; margin: 0; padding: .5rem .8rem; border: 1px solid var(--muted); border-radius: .6rem; cursor: pointer; }
.choice:has(:checked) { border-color: var(--accent); box-shadow: inset 0 0 0 1px var(--accent); }
.choice input { flex: none; width: 1.25rem; height: 1.25rem; min-height: 0; margin: 0; accent-color: var(--accent); }
.choice small { flex-basis: 100%; color: var(--muted); font-weight: 400; }
.chosen { display: none; }
form:has(.choice:nth-of-type(1) :checked) .chosen:nth-of-type(1), form:has(.choice:nth-of-type(2) :checked) .chosen:nth-of-type(2), form:has(.choice:nth-of-type(3) :checked) .chosen:nth-of-type(3), form:has(.choice:nth-of-type(4) :checked) .chosen:nth-of-type(4), form:has(.choice:nth-of-type(5) :checked) .chosen:nth-of-type(5) { display: inline; }
.own { grid-column: 1 / -1; }
.choice:has([value=own]) { grid-column: 1 / -1; }
.own label { margin-top: .5rem; }
fieldset:not(:has([value=own]:checked)) .own { display: none; }
button, a.button { display: block; width: 100%; min-height: 2.75rem; margin-top: 1.25rem; padding: .85rem 1rem; font: inherit; font-weight: 600; text-align: center; text-decoration: none; color: var(--accent-ink); background: var(--accent); border: 1px solid var(--accent); border-radius: .6rem; cursor: pointer; }
button.plain, a.button.plain { color: var(--accent); background: transparent; }
summary { padding: .7rem 0; color: var(--accent); font-weight: 600; cursor: pointer; }
.notice { padding: .75rem; border: 1px solid var(--accent); border-radius: .5rem; }
.problem { color: var(--warn); font-weight: 600; }
a { color: var(--accent); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.hint { color: var(--muted); font-size: .875rem; }
`;

const STYLE_HASH = createHash('sha256').update(STYLE).digest('base64');

/** Only the inline stylesheet may load. Chromium applies form-action to redirects, so it names the checkout (R19). */
export const pageContentSecurityPolicy = (formOrigins: readonly string[] = []): string =>
  `default-src 'none'; style-src 'sha256-${STYLE_HASH}'; form-action ${["'self'", ...formOrigins].join(' ')}; ` +
  `base-uri 'none'; frame-ancestors 'none'`;

export function renderPage(title: string, content: Html): string {
  return String(html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<style>${raw(STYLE)}</style>
</head>
<body>
<main>
<h1>${title}</h1>
${content}
</main>
</body>
</html>
`);
}

export const BACK = html`<a class="button plain" href="/top-up">Back to add credit</a>`;

export const renderErrorPage = (message: string): string =>
  renderPage('Request failed', html`<p>${message}</p>\n${BACK}`);
