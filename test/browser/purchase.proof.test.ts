import assert from 'node:assert/strict';
import type { BrowserContextOptions } from 'playwright-core';
import { type Test, test } from 'tap';
import { freePort } from '../../src/sandbox/free-port.ts';
import { testCheckout } from '../support/checkout.ts';
import { openBrowser, shot, withoutChromium } from '../support/chromium.ts';
import { startGateway } from '../support/gateway.ts';

/** A shop that the checkout leads back to, a browser on it, and what the browser complained of. */
async function visit(t: Test, options: BrowserContextOptions = {}) {
  const checkout = await testCheckout(t);
  const port = await freePort(undefined);
  const baseUrl = `http://127.0.0.1:${port}`;
  const gateway = await startGateway(t, { ...checkout.env, BASE_URL: baseUrl, PORT: String(port) });
  const browser = await openBrowser(t);
  const context = await browser.newContext({ viewport: { width: 390, height: 844 }, ...options });
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  return { checkout, baseUrl, gateway, page, complaints };
}

test('R19: a purchase in Chromium, from the launcher to the completed page', { skip: withoutChromium }, async (t) => {
  const { checkout, baseUrl, gateway, page, complaints } = await visit(t);
  await page.goto(`${baseUrl}/top-up?amount=750&challenge=from-a-402`);
  await shot(page, '1-launcher');
  assert.equal(await page.getByLabel('$7.50').isChecked(), true);

  await page.getByRole('button', { name: 'Pay by card' }).click();
  await page.waitForURL(`${checkout.origin}/**`);
  await shot(page, '2-checkout');
  await page.getByRole('button', { name: 'Decline the card' }).click();
  assert.match(await page.getByRole('alert').innerText(), /declined/);
  await shot(page, '3-declined');
  await page.getByRole('button', { name: /pay \$7\.50/i }).click();

  await page.waitForURL(`${baseUrl}/top-up/complete**`);
  await shot(page, '4-credited');
  assert.equal(await page.getByRole('heading').innerText(), 'Credit added');
  const account = await page.getByLabel('Your account id').inputValue();
  assert.equal(await gateway.balance(account), 7_500_000n);

  await page.reload();
  await shot(page, '5-already-credited');
  assert.equal(await page.getByRole('heading').innerText(), 'Already credited');
  assert.equal(await gateway.balance(account), 7_500_000n);

  await page.getByRole('link', { name: 'Add more credit' }).click();
  await page.getByLabel('$20.00').check();
  await page.getByRole('button', { name: 'Pay by card' }).click();
  await page.getByRole('button', { name: 'Pay $20.00' }).click();
  await page.waitForURL(`${baseUrl}/top-up/complete**`);
  assert.equal(await page.locator('dd.amount').innerText(), '$27.50');
  assert.equal(await page.getByLabel('Your account id').inputValue(), account);
  assert.deepEqual(complaints, [], 'no policy was broken and nothing was missing');
});

test('an own amount in Chromium: mistyped, corrected, left, and paid', { skip: withoutChromium }, async (t) => {
  const { checkout, baseUrl, page, complaints } = await visit(t, { javaScriptEnabled: false });
  await page.goto(`${baseUrl}/top-up?challenge=from-a-402`);
  const own = page.getByLabel('Amount in US dollars');
  assert.equal(await own.isVisible(), false, 'only what is chosen can be typed');
  await page.getByLabel('Another amount').check();
  await own.fill('4');
  await own.press('Enter');
  await page.getByText('at least $5.00').waitFor();
  assert.equal(await own.inputValue(), '4');

  await own.fill('12.50');
  await page.getByRole('button', { name: 'Pay by card' }).click();
  await page.waitForURL(`${checkout.origin}/**`);
  assert.equal(await page.locator('.amount').innerText(), '$12.50');
  await page.getByRole('link', { name: /Go back/ }).click();
  await page.getByText('Nothing was charged').first().waitFor();
  assert.equal(await page.getByLabel('$12.50').isChecked(), true);

  await page.getByRole('button', { name: 'Pay by card' }).click();
  await page.getByRole('button', { name: 'Pay $12.50' }).click();
  await page.waitForURL(`${baseUrl}/top-up/complete**`);
  assert.equal(await page.locator('dd.amount').innerText(), '$12.50');
  const [session] = (await checkout.stripe.checkout.sessions.list({ limit: 1 })).data;
  assert.equal(session?.metadata?.challenge_id, 'from-a-402');
  const refusals = complaints.filter((complaint) => !/status of 400/.test(complaint));
  assert.deepEqual(refusals, [], 'no policy was broken and nothing was missing');
});

test('an account id with a typing error is corrected in Chromium', { skip: withoutChromium }, async (t) => {
  const { baseUrl, gateway, page, complaints } = await visit(t, { javaScriptEnabled: false });
  const account = await gateway.fund(500);
  await page.goto(`${baseUrl}/top-up?amount=1000`);
  await page.getByText('I have an account already').click();
  await page.getByLabel('Account id').fill(`${account}x`);
  await page.getByRole('button', { name: 'Use this account' }).click();
  await page.getByText('There is no account with this id').waitFor();
  await page.getByLabel('Account id').fill(account);
  await page.getByRole('button', { name: 'Use this account' }).click();
  await page.getByText(account).waitFor();
  await page.getByRole('button', { name: 'Pay by card' }).click();
  await page.getByRole('button', { name: 'Pay $10.00' }).click();
  await page.waitForURL(`${baseUrl}/top-up/complete**`);
  assert.equal(await gateway.balance(account), 15_000_000n);
  assert.deepEqual(complaints, []);
});

test('an unknown session shows a page with a way out', { skip: withoutChromium }, async (t) => {
  const { baseUrl, page } = await visit(t);
  await page.goto(`${baseUrl}/top-up/complete?session_id=cs_test_unknown`);
  assert.equal(await page.getByRole('link', { name: 'Start a purchase' }).getAttribute('href'), '/top-up');
});
