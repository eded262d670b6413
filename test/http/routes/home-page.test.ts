import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { t, test } from 'tap';
import builtIn from '../../../src/config/catalog-default.json' with { type: 'json' };
import { CLIENT_SCRIPT } from '../../../src/http/pages/client-script.ts';
import { catalogFile } from '../../support/catalog-file.ts';
import { BASE_URL, startGateway } from '../../support/gateway.ts';

const BROWSER = { accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8' };
const PAGE_LOAD = { ...BROWSER, 'sec-fetch-dest': 'document' };
const MAX_PAGE_BYTES = 60 * 1024;
const ACCOUNT = '6b1f0f9e-0000-4000-8000-000000000001';

const escapeText = (text: string): string => text.replaceAll('"', '&quot;').replaceAll("'", '&#39;');

const inlineOf = (page: string, tag: 'style' | 'script'): string[] =>
  [...page.matchAll(new RegExp(`<${tag}[^>]*>(.*?)</${tag}>`, 'gs'))].map(([, source = '']) => source);

/** Without settings of its own. */
const gateway = await startGateway(t);

const ACCEPTED = [
  [BROWSER.accept, true],
  ['application/json, text/html', false],
  ['', false],
] as const;

for (const path of ['/', '/docs']) {
  test(`R69: GET ${path} is a page where Accept prefers HTML, otherwise the JSON`, async (t) => {
    const plain = await gateway.call(path);
    t.equal(plain.json.service, 'speechgate');
    for (const [accept, isPage] of ACCEPTED) {
      const reply = await gateway.call(path, { headers: { accept } });
      t.equal(reply.status, 200);
      t.equal(reply.headers.get('vary'), 'accept', accept);
      t.equal(/^text\/html/.test(reply.headers.get('content-type') ?? ''), isPage, accept);
      if (!isPage) t.equal(reply.text, plain.text, accept);
    }
  });
}

test('the page of /docs has an anchor for each error code, and each endpoint', async (t) => {
  const { text } = await gateway.call('/docs', { headers: BROWSER });
  const guide = (await gateway.call('/docs')).json;
  const anchors = [...text.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id);
  t.equal(new Set(anchors).size, anchors.length, 'each once');
  const named = guide.errorCodes.map((code: string) => code.toLowerCase().replaceAll('_', '-'));
  t.strictSame(
    named.filter((id: string) => !anchors.includes(id)),
    [],
  );
  const { type } = (await gateway.call('/tts?text=Hello')).json;
  const [page, anchor] = type.split('#');
  t.strictSame([page, anchors.includes(anchor)], [`${BASE_URL}/docs`, true]);
  const { paths } = (await gateway.call('/openapi.json')).json;
  for (const [path, methods] of Object.entries<object>(paths)) {
    for (const method of Object.keys(methods))
      t.ok(text.includes(`<code>${method.toUpperCase()} ${path}</code>`), path);
  }
  const links = [...text.matchAll(/href="#([^"]+)"/g)].map(([, id]) => id);
  t.strictSame(
    links.filter((id) => !anchors.includes(id)),
    [],
  );
  for (const steps of Object.values<string | string[]>(guide.agentGuide)) {
    for (const step of [steps].flat()) t.ok(text.includes(escapeText(step)), step);
  }
});

test('the policy of the page allows its own style and script only', async (t) => {
  const page = await gateway.call('/', { headers: BROWSER });
  const policy = page.headers.get('content-security-policy') ?? '';
  for (const tag of ['style', 'script'] as const) {
    const [source = '', ...more] = inlineOf(page.text, tag);
    t.strictSame(more, [], `one ${tag}`);
    const hash = createHash('sha256').update(source).digest('base64');
    t.ok(policy.includes(`${tag}-src 'sha256-${hash}'`), tag);
  }
  t.notMatch(page.text, / (style|on\w+)=/, 'which the policy would block');
});

test('the page is one request of less than 60 KB, and names no other host', async (t) => {
  const page = await gateway.call('/', { headers: BROWSER });
  t.ok(page.bytes.length < MAX_PAGE_BYTES, `${page.bytes.length} bytes`);
  const loaded = [
    ...page.text.matchAll(/ (?:src|srcset|poster|action)="([^"]*)"|<link [^>]*href="([^"]*)"|url\(([^)]*)\)/g),
  ];
  t.strictSame(
    loaded.map(([, ...urls]) => urls.find(Boolean)).filter((url) => !url?.startsWith('data:')),
    [],
  );
  // It has the name of a schema, which it compares.
  t.ok(page.text.includes(CLIENT_SCRIPT));
  const hosts = [...page.text.replace(CLIENT_SCRIPT, '').matchAll(/https?:\/\/[\w.:-]+/g)].map(([url]) => url);
  t.strictSame([...new Set(hosts)], [BASE_URL]);
});

test('the page shows the voices, prices and links of the deployment', async (t) => {
  const gateway = await startGateway(t, {
    SERVICE_NAME: 'Voices <b>',
    SERVICE_CONTACT: 'help@acme.example',
    SELLER_NAME: 'Acme & Söhne',
    SERVICE_URL: 'https://acme.example',
    TERMS_URL: 'https://acme.example/terms',
    PRIVACY_URL: 'https://acme.example/privacy',
  });
  const { text } = await gateway.call('/', { headers: BROWSER });
  for (const shown of [
    'Voices &lt;b&gt;</a>',
    '<a href="mailto:help@acme.example">Contact</a>',
    '<a href="https://acme.example/">Acme &amp; Söhne</a>',
    '<a href="https://acme.example/terms">Terms</a>',
    '<a href="https://acme.example/privacy">Privacy</a>',
    '<strong>$0.018</strong> per 1,000 characters',
    '<option value="provider-a_alloy" selected>Alloy · TTS 1</option>',
    `curl -f -o speech.mp3 ${BASE_URL}/tts`,
    'href="/top-up"',
    'href="/docs"',
    'href="/openapi.json"',
  ]) {
    t.ok(text.includes(shown), shown);
  }
  t.notMatch(text, /<b>/);
});

test('the page offers only the ways to pay that are on', async (t) => {
  const cardOff = { STRIPE_SECRET_KEY: '', STRIPE_API_BASE: '' };
  const models = builtIn.models.map((model) => ({ ...model, available: false }));
  const allClosed = { CATALOG_FILE: await catalogFile(t, { ...builtIn, models }) };
  const x402Off = { X402_PAY_TO: '', X402_FACILITATOR_URL: '', X402_RPC_URL: '' };
  for (const [env, hasCard, hasUsdc, notice] of [
    [cardOff, false, true, undefined],
    [x402Off, true, false, undefined],
    [{ X402_RPC_URL: '' }, true, false, undefined],
    [{ ...cardOff, ...x402Off }, false, false, 'No payment is set up here yet.'],
    [{ SPEECH_BASE_URL: '' }, true, true, 'Speech is not available here now.'],
    [allClosed, true, true, 'Speech is not available here now.'],
  ] as const) {
    const { text } = await (await startGateway(t, env)).call('/', { headers: BROWSER });
    const where = JSON.stringify(env);
    t.equal(text.includes('href="/top-up"'), hasCard, where);
    t.equal(/<h3>Prepaid USDC<\/h3>/.test(text), hasUsdc, where);
    t.equal(/<form id="speak"/.test(text), notice === undefined, where);
    if (notice !== undefined) t.ok(text.includes(notice), where);
  }
});

test('only a page load of a sandbox shows its demo account, which nothing caches', async (t) => {
  const sandbox = await startGateway(t, {}, { demoAccount: () => ACCOUNT });
  const loaded = await sandbox.call('/', { headers: PAGE_LOAD });
  t.ok(loaded.text.includes(ACCOUNT));
  t.equal(loaded.headers.get('cache-control'), 'private, no-store');
  t.notMatch(loaded.text, /value="wallet"/, 'its chain has the id of a real one');
  for (const dest of ['empty', 'iframe', undefined]) {
    const headers = { ...BROWSER, ...(dest !== undefined && { 'sec-fetch-dest': dest }) };
    assert.ok(!(await sandbox.call('/', { headers })).text.includes(ACCOUNT), dest);
  }
  const service = await gateway.call('/', { headers: PAGE_LOAD });
  t.notMatch(service.text, /play money/);
  t.match(service.text, /value="wallet"/);
});

test('GET /llms.txt names the ways to pay that are on, and where the rest is', async (t) => {
  const notes = await gateway.call('/llms.txt', { headers: BROWSER });
  t.equal(notes.headers.get('content-type'), 'text/plain; charset=utf-8');
  const links = [...notes.text.matchAll(/\]\(([^)]+)\)/g)].map(([, link = '']) => link);
  for (const link of links) t.equal((await gateway.call(link.slice(BASE_URL.length))).status, 200, link);
  t.equal(links.length, 5);
  const ways = (text: string) => [...text.matchAll(/^- ([^:[]+):/gm)].map(([, way]) => way);
  t.strictSame(ways(notes.text), ['Card credit', 'Direct x402', 'Prepaid x402']);
  const byCard = await startGateway(t, { X402_RPC_URL: '' });
  t.strictSame(ways((await byCard.call('/llms.txt')).text), ['Card credit']);
});

test('a browser gets 402 and 404 as a page with the way on, in the status of the API', async (t) => {
  const links = (page: string) => [...page.matchAll(/<a class="button[^>]* href="([^"]+)"/g)].map(([, href]) => href);
  const topUp = `${BASE_URL}/top-up?amount=500`;
  for (const [path, status, ways] of [
    ['/nowhere/<b>', 404, ['/', '/docs']],
    [`/credits/${ACCOUNT}`, 404, ['/', '/docs']],
    [`/tts/jobs/${ACCOUNT}`, 404, ['/', '/docs']],
    [`/tts/jobs/${ACCOUNT}/audio`, 404, ['/', '/docs']],
    ['/tts?text=Hello', 402, [topUp, '/', '/docs']],
    ['/x402/tts?text=Hello', 402, ['/', '/docs']],
  ] as const) {
    const plain = await gateway.call(path, { headers: { accept: '*/*' } });
    t.strictSame([plain.status, typeof plain.json.error.code], [status, 'string'], path);
    const page = await gateway.call(path, { headers: BROWSER });
    t.equal(page.status, status, path);
    t.strictSame(links(page.text), ways, path);
    t.ok(page.text.includes(escapeText(plain.json.error.message)), path);
    const names = (headers: Headers) => [...headers.keys()].filter((name) => name !== 'content-length');
    t.strictSame(names(page.headers), names(plain.headers), path);
  }
  const posted = await gateway.call('/tts', { method: 'POST', json: { text: 'Hello' }, headers: BROWSER });
  t.equal(posted.json.error.code, 'PAYMENT_REQUIRED');
});
