import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { startCheckout } from '../../src/sandbox/checkout/checkout-server.ts';
import { choose, client, FORM, get, KEY, newDirectory, order, setUp, urlOf } from './checkout-client.ts';

test('who sends something else than the buttons do can go back to the payment', async (t) => {
  const { stripe } = await setUp(t);
  const url = urlOf(await stripe.checkout.sessions.create(order));
  const wrong = await fetch(url, { method: 'POST', headers: FORM, body: 'card=stolen' });
  const unread = await fetch(url, { method: 'POST', headers: { 'content-type': 'text/plain' }, body: 'card' });
  for (const [answer, status] of [
    [wrong, 400],
    [unread, 415],
  ] as const) {
    assert.equal(answer.status, status);
    assert.match(await answer.text(), /<a class="back" href="">Back to the payment<\/a>/);
  }
});

test('the page names merchant, amount and sandbox, escapes what it shows and holds no script', async (t) => {
  const { stripe } = await setUp(t);
  const page = await get(urlOf(await stripe.checkout.sessions.create(order)));
  assert.equal(page.status, 200);
  const text = await page.text();
  assert.match(text, /<h1>Pay Tom &amp; Co<\/h1>/);
  assert.ok(text.includes('$12.50'));
  assert.ok(text.includes('Speech &lt;credits&gt;'));
  assert.match(text, /Sandbox/);
  assert.match(text, /<html lang="en">/);
  assert.match(text, /name="viewport"/);
  assert.doesNotMatch(text, /<script/);
});

test("the page's policy lets its forms lead to the merchant's origin and nowhere else (R19)", async (t) => {
  const { stripe } = await setUp(t);
  const page = await get(urlOf(await stripe.checkout.sessions.create(order)));
  const policy = page.headers.get('content-security-policy') ?? '';
  assert.match(policy, /default-src 'none'/);
  assert.match(policy, /form-action 'self' http:\/\/127\.0\.0\.1:8080(;|$)/);
  assert.match(policy, /frame-ancestors 'none'/);
  assert.equal(page.headers.get('x-content-type-options'), 'nosniff');
  assert.equal(page.headers.get('x-frame-options'), 'DENY');
  assert.equal(page.headers.get('referrer-policy'), 'no-referrer');
  assert.equal(page.headers.get('cache-control'), 'no-store');
});

test('an unknown payment, another choice and a broken address are refused with a page', async (t) => {
  const { stripe, origin } = await setUp(t);
  const url = urlOf(await stripe.checkout.sessions.create(order));
  const cases: [Promise<Response>, number][] = [
    [get(`${origin}/c/pay/cs_test_unknown`), 404],
    [choose(`${origin}/c/pay/cs_test_unknown`, 'accepted'), 404],
    [get(`${origin}/`), 404],
    [fetch(url, { method: 'POST', headers: FORM, body: 'card=stolen' }), 400],
    [fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}' }), 415],
    [get(`${origin}/c/pay/%zz`), 400],
  ];
  for (const [attempt, status] of cases) {
    const answer = await attempt;
    assert.equal(answer.status, status);
    assert.match(answer.headers.get('content-type') ?? '', /^text\/html/);
    assert.match(answer.headers.get('content-security-policy') ?? '', /default-src 'none'/);
  }
});

test('what was answered survives a kill, and the address stays the same', async (t) => {
  const dataDir = await newDirectory(t);
  const module = fileURLToPath(new URL('../../src/sandbox/checkout/checkout-server.ts', import.meta.url));
  const script = `
    const { startCheckout } = await import(${JSON.stringify(module)});
    const options = { dataDir: ${JSON.stringify(dataDir)}, secretKey: ${JSON.stringify(KEY)} };
    console.log((await startCheckout(options)).origin);`;
  const child: ChildProcess = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  const [line] = (await once(child.stdout as NodeJS.ReadableStream, 'data')) as [Buffer];
  const origin = line.toString().trim();
  const stripe = client(origin);
  const session = await stripe.checkout.sessions.create(order, { idempotencyKey: 'once' });
  const other = await stripe.checkout.sessions.create(order);
  assert.equal((await choose(urlOf(session), 'accepted')).status, 303);
  child.kill('SIGKILL');
  await once(child, 'exit');

  const again = await startCheckout({ dataDir, secretKey: KEY });
  t.teardown(again.close);
  assert.equal(again.origin, origin);
  assert.equal((await stripe.checkout.sessions.retrieve(session.id)).payment_status, 'paid');
  assert.equal((await stripe.checkout.sessions.retrieve(other.id)).status, 'open');
  assert.equal((await stripe.checkout.sessions.create(order, { idempotencyKey: 'once' })).id, session.id);
  assert.equal((await stat(join(dataDir, 'checkout.json'))).mode & 0o777, 0o600);
});

test('a half-written new file changes nothing, and a damaged state is named', async (t) => {
  const dataDir = await newDirectory(t);
  const file = join(dataDir, 'checkout.json');
  const first = await startCheckout({ dataDir, secretKey: KEY });
  const session = await client(first.apiBase).checkout.sessions.create(order);
  await first.close();
  await writeFile(`${file}.new`, (await readFile(file, 'utf8')).slice(0, 20));
  const second = await startCheckout({ dataDir, secretKey: KEY });
  assert.equal((await client(second.apiBase).checkout.sessions.retrieve(session.id)).id, session.id);
  await second.close();
  await writeFile(file, '{"sessions":');
  await assert.rejects(startCheckout({ dataDir, secretKey: KEY }), /checkout\.json is damaged/);
});
