import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'node:test';
import type { Page } from 'playwright-core';
import { freePort } from '../../src/sandbox/free-port.ts';
import { testCheckout } from '../support/checkout.ts';
import { openBrowser, withoutChromium } from '../support/chromium.ts';
import { startGateway } from '../support/gateway.ts';

/** Where screenshots go, for a person to look at; none are taken without it. */
const SCREENSHOTS = process.env.SCREENSHOTS;

async function shot(page: Page, name: string): Promise<void> {
  if (!SCREENSHOTS) return;
  await mkdir(SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`), fullPage: true });
}

test('R19: a purchase in Chromium, from the launcher to the completed page', { skip: withoutChromium }, async (t) => {
  const checkout = await testCheckout(t);
  const port = await freePort(undefined);
  const baseUrl = `http://127.0.0.1:${port}`;
  const gateway = await startGateway(t, { ...checkout.env, BASE_URL: baseUrl, PORT: String(port) });
  const browser = await openBrowser(t);
  const context = await browser.newContext({ viewport: { width: 390, height: 844 } });
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(String(error)));

  await page.goto(`${baseUrl}/top-up?amount=750&challenge=from-a-402`);
  await shot(page, '1-launcher');
  assert.match(await page.locator('main').innerText(), /7\.50 USD/);

  await page.getByRole('button', { name: /Pay 7\.50 USD/ }).click();
  await page.waitForURL(`${checkout.origin}/**`);
  await shot(page, '2-checkout');
  await page.getByRole('button', { name: 'Decline the card' }).click();
  assert.match(await page.getByRole('alert').innerText(), /declined/);
  await shot(page, '3-declined');
  await page.getByRole('button', { name: /pay/i }).first().click();

  await page.waitForURL(`${baseUrl}/top-up/complete**`);
  await shot(page, '4-credited');
  assert.equal(await page.getByRole('heading').innerText(), 'Credit added');
  const account = await page.locator('dd code').innerText();
  assert.equal(await gateway.balance(account), 7_500_000n);

  await page.reload();
  await shot(page, '5-already-credited');
  assert.equal(await page.getByRole('heading').innerText(), 'Already credited');
  assert.equal(await gateway.balance(account), 7_500_000n);
  assert.deepEqual(complaints, [], 'no policy was broken and nothing was missing');
});

test('an unknown session shows a page with a way out', { skip: withoutChromium }, async (t) => {
  const checkout = await testCheckout(t);
  const gateway = await startGateway(t, checkout.env);
  const page = await (await openBrowser(t)).newPage();
  await page.goto(`${gateway.url}/top-up/complete?session_id=cs_test_unknown`);
  await shot(page, '6-unknown');
  assert.equal(await page.getByRole('link', { name: 'Start a purchase' }).getAttribute('href'), '/top-up');
});
