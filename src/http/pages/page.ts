import { createHash } from 'node:crypto';
import type { Config } from '../../config/config.ts';
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
.choice span { flex: 1; }
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
.seller { display: flex; flex-wrap: wrap; align-items: center; gap: 0 1.25rem; margin-top: 1rem; color: var(--muted); font-size: .875rem; }
.seller a { display: inline-flex; align-items: center; min-height: 2.75rem; }
`;

/** Of a page as wide as the screen allows, with a header and a footer. */
const WIDE_STYLE = `${STYLE}
:root { --soft: #eef3f0; }
@media (prefers-color-scheme: dark) { :root { --soft: #16201f; } }
body { padding: 0 clamp(1rem, 4vw, 2.5rem); }
body > header, main, body > footer { max-width: 66rem; margin: 0 auto; padding: 1rem 0; }
main { background: none; border: 0; border-radius: 0; }
body > header, body > footer, nav { display: flex; flex-wrap: wrap; align-items: center; gap: 0 1.25rem; }
body > header { justify-content: space-between; }
body > footer { margin-top: 2rem; border-top: 1px solid var(--line); color: var(--muted); font-size: .9375rem; }
nav a, header a, footer a { display: inline-flex; align-items: center; min-height: 2.75rem; }
header .brand { color: var(--ink); font-size: 1.125rem; font-weight: 700; text-decoration: none; }
.brand::before { content: ''; width: 1.1rem; height: 1.1rem; margin-right: .55rem; --bar: linear-gradient(var(--accent) 0 0) no-repeat; background: var(--bar), var(--bar), var(--bar); background-position: 0 50%, 50% 50%, 100% 50%; background-size: .22rem 45%, .22rem 100%, .22rem 65%; }
h1 { font-size: clamp(1.9rem, 6vw, 3.1rem); line-height: 1.1; letter-spacing: -.02em; margin: 1.25rem 0 .75rem; text-wrap: balance; }
h2 { margin: 2.75rem 0 .75rem; font-size: 1.45rem; line-height: 1.25; }
h3 { margin: 1.5rem 0 .5rem; font-size: 1.05rem; }
.lead { max-width: 42rem; margin: 0 0 1.75rem; color: var(--muted); font-size: 1.125rem; }
.panel { padding: clamp(1rem, 3vw, 1.5rem); background: var(--card); border: 1px solid var(--line); border-radius: 1rem; }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; }
th, td { padding: .6rem .75rem .6rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
thead th { color: var(--muted); font-size: .875rem; font-weight: 600; }
pre { margin: 0; padding: 1rem; background: var(--soft); }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1.5rem clamp(1.5rem, 4vw, 3rem); align-items: start; }
.columns > * { min-width: 0; }
.columns h2 { margin-top: .5rem; }
.ways { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 16rem), 1fr)); gap: 1rem; }
.ways h3 { margin-top: 0; }
.ways p:last-child { margin-bottom: 0; }
form.panel label:first-of-type { margin-top: 0; }
textarea, select { width: 100%; min-height: 2.75rem; padding: .7rem .8rem; font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--muted); border-radius: .5rem; }
textarea { display: block; resize: vertical; }
#cost { margin: .35rem 0 0; text-align: right; font-variant-numeric: tabular-nums; }
#status { margin-bottom: 0; min-height: 1.55em; font-weight: 600; overflow-wrap: anywhere; }
#unfinished { margin-bottom: 1rem; padding-top: 0; }
audio { width: 100%; }
[hidden] { display: none !important; }
dd { font-weight: 400; }
dt { color: inherit; font-size: 1rem; font-weight: 600; }
.docs { max-width: 46rem; overflow-wrap: anywhere; }
.docs li { margin: .35rem 0; }
.docs h2, .docs dt { scroll-margin-top: 1rem; }
dt:target, h2:target { text-decoration: underline; text-decoration-color: var(--accent); text-underline-offset: .3rem; }
details { border-top: 1px solid var(--line); padding-bottom: .75rem; }
button.copy, #hear, #deposit { width: auto; min-height: 2.75rem; margin-top: .5rem; padding: .4rem .9rem; }
button[disabled] { opacity: .6; cursor: progress; }
`;

/** Three bars of sound. */
const ICON =
  'data:image/svg+xml,' +
  encodeURIComponent(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="4" fill="#0f5c4d"/>' +
      '<path d="M4 6v4M8 3v10M12 6v4" stroke="#fff" stroke-width="2" stroke-linecap="round"/></svg>',
  );

const hashOf = (source: string): string => `'sha256-${createHash('sha256').update(source).digest('base64')}'`;

/**
 * The policy of pages (R76). Only the inline stylesheet and script may load, and the script calls this service only.
 * Chromium applies form-action to redirects, so it names the checkout (R19).
 */
export function pageContentSecurityPolicy(formOrigins: readonly string[] = [], style = STYLE, script?: string): string {
  const scripted =
    script === undefined ? '' : `script-src ${hashOf(script)}; connect-src 'self'; media-src blob:; img-src data:; `;
  return (
    `default-src 'none'; style-src ${hashOf(style)}; ${scripted}form-action ${["'self'", ...formOrigins].join(' ')}; ` +
    `base-uri 'none'; frame-ancestors 'none'`
  );
}

/** What an operation returns for a page. */
export const pageResponse = <Status extends number, Headers extends object>(
  status: Status,
  headers: Headers,
  body: string,
) => ({ status, headers, type: 'text/html' as const, body });

function renderDocument(title: string, body: Html, head: Html): string {
  return String(html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
${head}
</head>
<body>
${body}
</body>
</html>
`);
}

export const renderPage = (title: string, content: Html): string =>
  renderDocument(title, html`<main>\n<h1>${title}</h1>\n${content}\n</main>`, html`<style>${raw(STYLE)}</style>`);

export type Site = Pick<Config, 'serviceName' | 'contact' | 'seller' | 'card'>;

/** Who sells here, and where to ask. */
function sellerLinks({ contact, seller }: Site): Html {
  const mail = contact && 'email' in contact ? `mailto:${contact.email}` : contact?.url;
  const links = [
    [seller.name ?? 'Operator', seller.url],
    ['Contact', mail],
    ['Terms', seller.termsUrl],
    ['Privacy', seller.privacyUrl],
  ] as const;
  const shown = links.map(([name, url]) => (url === undefined ? html`` : html`<a href="${url}">${name}</a>\n`));
  return html`${seller.name !== undefined && seller.url === undefined ? html`<span>${seller.name}</span>\n` : ''}${shown}`;
}

export const sellerNote = (site: Site): Html => html`<footer class="seller">\n${sellerLinks(site)}</footer>`;

/** A page for everybody, and its policy. @param script a module */
export function widePage(title: string, content: Html, site: Site, script?: string) {
  const { serviceName, card } = site;
  const body = html`<header>
<a class="brand" href="/">${serviceName}</a>
<nav aria-label="Service">${card ? html`<a href="/top-up">Add credit</a>` : ''}<a href="/docs">Docs</a><a href="/openapi.json">API contract</a></nav>
</header>
<main>
<h1>${title}</h1>
${content}
</main>
<footer>
${sellerLinks(site)}<span>Every response has the header x-trace-id. Quote it when you ask for help.</span>
</footer>${script === undefined ? '' : html`\n<script type="module">${raw(script)}</script>`}`;
  const icon = script === undefined ? '' : html`\n<link rel="icon" href="${ICON}">`;
  const head = html`<style>${raw(WIDE_STYLE)}</style>${icon}`;
  return {
    body: renderDocument(`${title} · ${serviceName}`, body, head),
    policy: pageContentSecurityPolicy([], WIDE_STYLE, script),
  };
}

export const BACK = html`<a class="button plain" href="/top-up">Back to add credit</a>`;

export const renderErrorPage = (message: string): string =>
  renderPage('Request failed', html`<p>${message}</p>\n${BACK}`);

const DOCS = html`<a class="button plain" href="/docs">See how this service is used and paid</a>`;
const startPage = (style = ''): Html => html`<a class="button ${style}" href="/">To the start page</a>`;

/** What a browser gets for an address that is nowhere, or that only a program can pay. @param topUpUrl if credit pays it */
export function renderWayOn(status: number, message: string, topUpUrl?: string): string {
  if (status === 404) return renderPage('Not found', html`<p>${message}</p>\n${startPage()}\n${DOCS}`);
  const links =
    topUpUrl === undefined
      ? startPage()
      : html`<a class="button" href="${topUpUrl}">Add credit</a>\n${startPage('plain')}`;
  return renderPage(
    'Payment required',
    html`<p>Programs pay this address with each request. A browser's address bar can't: type your text on the start page, and pay
there.</p>
${links}
${DOCS}
<p class="hint">Programs get this message: ${message}</p>`,
  );
}
