import { routes } from '../../contract/routes.ts';
import type { OpenApiDocument } from '../../contract/types.ts';
import { type Html, html } from '../pages/html.ts';
import { type Site, widePage } from '../pages/page.ts';
import { type ErrorCode, statusOf } from '../structured-error.ts';
import type { guide } from './guide.ts';

type Guide = ReturnType<typeof guide>;
type DocsOptions = Site & { readonly contract: OpenApiDocument };

/** Members of the guide's `payment` and `agentGuide`, in the order of reading. */
const CHAPTERS = [
  ['cardCredits', 'Card credit'],
  ['asynchronousJobs', 'Jobs'],
  ['directX402', 'Direct x402'],
  ['prepaidX402', 'Prepaid x402'],
  ['feedback', 'Feedback'],
] as const;

const MORE = ['Endpoints', 'Limits', 'Errors'];

/** The guide as a page. Its error codes have the anchors that the `type` of errors names. */
export function docsPage(guide: Guide, options: DocsOptions) {
  const titles = [...CHAPTERS.map(([, title]) => title), ...MORE];
  const content = html`<p class="lead">${guide.description}</p>
<div class="docs">
<nav aria-label="On this page">${titles.map((title) => html`<a href="#${anchor(title)}">${title}</a> `)}</nav>
<p>${guide.agentGuide.privacy}</p>
<p><a href="/openapi.json">/openapi.json</a> is the contract. Programs that ask for JSON get this guide as JSON. Wherever an
amount is in micro-USD, 1,000,000 are one US dollar.</p>
${CHAPTERS.map(
  ([key, title]) => html`${heading(title)}${key in guide.payment ? facts(key as keyof Guide['payment'], guide) : ''}
<ol>${guide.agentGuide[key].map((step) => html`<li>${prose(step)}</li>\n`)}</ol>
`,
)}
${heading('Endpoints')}
<dl>${endpointsOf(options.contract)}</dl>
${heading('Limits')}
${definitions(guide.limits)}
${heading('Errors')}
<p>Every error is <code>{"error": {"code", "message", "details"}}</code>. ${prose(
    '`details` names the field and the rule. If it has `payment`, its `state` says what happened to the money: `not_charged`, ' +
      '`charged`, or `unknown`, which means that you should repeat the identical request later. Without it, an earlier try of ' +
      'the same request may have been charged.',
  )}</p>
<dl>${(Object.keys(statusOf) as ErrorCode[]).map(errorEntry)}</dl>
</div>`;
  return widePage('How to use this service', content, options);
}

/** `PAYMENT_REQUIRED` and `Payment required` → `payment-required`. */
const anchor = (name: string): string => name.toLowerCase().replaceAll(/[ _]/g, '-');

const heading = (title: string): Html => html`<h2 id="${anchor(title)}">${title}</h2>`;

/** Text in which code stands between backticks. */
const prose = (text: string): Html[] =>
  text.split('`').map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : html`${part}`));

/** `maxTextLength` → `Max text length`. */
const spaced = (name: string): string => {
  const words = name.replaceAll(/(?<=[a-z])[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`).replace(/\busd$/, 'USD');
  return words.charAt(0).toUpperCase() + words.slice(1);
};

const definitions = (members: object): Html =>
  html`<dl>${Object.entries(members).map(([name, value]) => html`<dt>${spaced(name)}</dt><dd>${shown(value)}</dd>\n`)}</dl>`;

function shown(value: unknown): Html | Html[] {
  if (Array.isArray(value)) return value.map((item) => html`<code>${item}</code><br>`);
  if (typeof value !== 'object')
    return prose(typeof value === 'number' ? value.toLocaleString('en-US') : String(value));
  return html`${Object.entries(value as object).map(([name, each]) => html`<code>${name}</code>: ${shown(each)}<br>`)}`;
}

function facts(flow: keyof Guide['payment'], { payment }: Guide): Html {
  const { authentication, ...members } = { authentication: undefined, ...payment[flow] };
  const signature = authentication
    ? html`<details><summary>What is signed, and vectors to check your signer</summary>
<pre tabindex="0" aria-label="What is signed">${JSON.stringify(authentication, null, 2)}</pre></details>`
    : '';
  return html`${definitions(members)}${signature}`;
}

function endpointsOf({ paths }: OpenApiDocument): Html[] {
  const described = paths as Record<string, Record<string, { summary: string; description: string }>>;
  return Object.entries(described).flatMap(([path, methods]) =>
    Object.entries(methods).map(
      ([method, { summary, description }]) => html`<dt><code>${method.toUpperCase()} ${path}</code></dt>
<dd>${prose(summary)}.<br><span class="hint">${prose(description)}</span></dd>
`,
    ),
  );
}

/** What to do about an error: by its code, otherwise by its status. */
const ADVICE: Readonly<Partial<Record<ErrorCode | number, string>>> = {
  400: 'Correct the request, then send it again. It was not charged.',
  401: 'The link or the signature is not valid. Get a new link, or read the signed metadata and sign again. The request was not charged.',
  402: 'Too little money, or a refused payment: `details` says why. If `details.payment.state` is `unknown`, repeat the identical request later. Otherwise the request was not charged: pay, or raise the maximum.',
  404: 'There is no such thing now: the message says why. Check the path or the id.',
  FEEDBACK_SIGNATURE_INVALID:
    'The wallet did not sign `signingMessage`. Sign it exactly, with EIP-191 `personal_sign`.',
  PAYMENT_IDENTIFIER_CONFLICT:
    'An earlier request used the identifier or authorization. Repeat that request unchanged, or make a new payment. This request was not charged.',
  PAYMENT_REPLAY_PENDING:
    'Repeat the identical request after `Retry-After` seconds: it is not charged twice. Do not pay again.',
  PAYMENT_OUTCOME_UNKNOWN:
    'You may have been charged. Repeat the identical request after `Retry-After` seconds. Do not pay again.',
  PREPAID_NONCE_REPLAYED:
    '`details.state` says what happened to the first request. Without it, another request used the nonce: read the balance before you sign again.',
  FEEDBACK_CHALLENGE_REPLAYED: 'The feedback is stored already. Get a new challenge to send more.',
  JOB_NOT_READY: 'The job is not finished. Poll its status, then request the audio again.',
  AUDIO_NOT_STORED:
    'The audio was not stored, or was deleted after its retention time. The job was charged; a new request is charged again.',
  413: 'Shorten the request. It was not charged.',
  415: 'Send one of the content types that the contract names. The request was not charged.',
  429: 'Retry after `Retry-After` seconds. The request was not charged.',
  500: 'The service failed; `details.payment`, if present, says whether you were charged. With x402, repeat the identical request. With card credit, read the balance before you pay again.',
  502: 'The speech provider, the facilitator or the card processor failed. The request was not charged and can be retried, unless `details.transient` is `false` or `details.payment.state` is `unknown`: if it is `unknown`, repeat the identical request later.',
  503: 'A part of the service is unavailable or not set up: `details` says which. `details.payment`, if present, says whether you were charged. Retry later; if `details.reason` is `database_unavailable`, repeat the identical x402 request, or read the credit balance first.',
};

function errorEntry(code: ErrorCode): Html {
  const status = statusOf[code];
  const operations = routes
    .filter(({ responses }) => responses[status]?.errorCodes?.includes(code))
    .map(({ method, path }) => `${method} ${path}`);
  const where = operations.length > routes.length / 2 ? 'most endpoints' : operations.join(', ');
  return html`<dt id="${anchor(code)}">${status} <code>${code}</code></dt>
<dd>${prose(ADVICE[code] ?? ADVICE[status] ?? '')}<br><span class="hint">From ${where}.</span></dd>
`;
}
