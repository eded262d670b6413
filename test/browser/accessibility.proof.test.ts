import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import type { AxeResults } from 'axe-core';
import type { Page } from 'playwright-core';
import { test } from 'tap';
import { testCheckout } from '../support/checkout.ts';
import { openBrowser, shot, withoutChromium } from '../support/chromium.ts';
import { startGateway } from '../support/gateway.ts';

const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
const WIDTHS = [375, 1280];
const SCHEMES = ['light', 'dark'] as const;
const SMALLEST_TARGET = 44;

/** What keeps some people from using the page as it is shown now: broken rules, cut text, and targets too small to hit. */
async function findings(page: Page): Promise<string[]> {
  const { violations } = await page.evaluate<AxeResults>('axe.run()');
  const broken = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
  const cut = await page.evaluate<string[]>(`
    [document.documentElement, ...document.querySelectorAll('input[readonly], pre, dd, p')]
      .filter((element) => element.scrollWidth > element.clientWidth)
      .map((element) => 'cut: ' + element.tagName)`);
  const small = await page.evaluate<string[]>(`
    [...document.querySelectorAll('a, button, input:not([type=hidden]), summary')]
      .map((element) => element.closest('label') ?? element)
      .filter((element) => element.checkVisibility())
      .filter((element) => element.getBoundingClientRect().height < ${SMALLEST_TARGET})
      .map((element) => 'small: ' + element.outerHTML)`);
  return [...broken, ...cut, ...small];
}

test('every page of a purchase can be used by everybody, on any screen, by day and by night', {
  skip: withoutChromium,
}, async (t) => {
  const checkout = await testCheckout(t);
  const gateway = await startGateway(t, { ...checkout.env, TOP_UP_RATE_LIMIT_MAX: '4' });
  const off = await startGateway(t, { STRIPE_SECRET_KEY: '', STRIPE_API_BASE: '' });
  const down = await startGateway(t);
  const browser = await openBrowser(t);
  const page = await (await browser.newContext({ bypassCSP: true })).newPage();
  const all: string[] = [];
  const look = async (name: string, heading: string) => {
    assert.equal(await page.getByRole('heading', { level: 1 }).innerText(), heading, name);
    await page.addScriptTag({ path: AXE });
    for (const width of WIDTHS) {
      for (const colorScheme of SCHEMES) {
        await page.setViewportSize({ width, height: 800 });
        await page.emulateMedia({ colorScheme });
        await shot(page, `${name}-${width}-${colorScheme}`);
        for (const finding of await findings(page)) all.push(`${name}, ${width} px, ${colorScheme}: ${finding}`);
      }
    }
  };
  const visit = async (name: string, address: string, heading: string) => {
    await page.goto(address);
    await look(name, heading);
  };
  const pay = () => page.getByRole('button', { name: 'Pay by card' }).click();
  const newest = async () => (await checkout.stripe.checkout.sessions.list({ limit: 1 })).data[0];
  const { url } = gateway;
  const account = await gateway.fund(500);

  await visit('launcher', `${url}/top-up`, 'Add speech credit');
  await visit('launcher-account', `${url}/top-up?amount=1234&account=${account}`, 'Add speech credit');
  await visit('launcher-canceled', `${url}/top-up?amount=2000&canceled=1`, 'Add speech credit');
  await page.getByText('I have an account already').click();
  await look('launcher-open', 'Add speech credit');
  await visit('unknown-account', `${url}/top-up?account=6b1f0f9e-0000-4000-8000-000000000000`, 'Unknown account');
  await page.goto(`${url}/top-up`);
  await page.getByLabel('Another amount').check();
  await look('own-amount', 'Add speech credit');
  await page.getByLabel('Amount in US dollars').fill('4.99');
  await pay();
  await look('own-amount-refused', 'Add speech credit');

  await page.goto(`${url}/top-up?amount=1234`);
  await pay();
  await look('checkout', 'Pay Speechgate');
  const paymentAddress = page.url();
  await page.getByRole('button', { name: 'Decline the card' }).click();
  await look('checkout-declined', 'Pay Speechgate');
  const paid = await newest();
  await visit('unpaid', `${url}/top-up/complete?session_id=${paid?.id}`, 'Not paid yet');
  await checkout.pay(paymentAddress);
  await visit('checkout-paid', paymentAddress, 'Already paid');
  await visit('checkout-dashboard', `${checkout.origin}/dashboard`, 'Purchases');
  await visit('credited', `${url}/top-up/complete?session_id=${paid?.id}`, 'Credit added');
  await visit('already-credited', `${url}/top-up/complete?session_id=${paid?.id}`, 'Already credited');

  await page.goto(`${url}/top-up`);
  await pay();
  const expiredAddress = page.url();
  await checkout.stripe.checkout.sessions.expire((await newest())?.id ?? '');
  await visit('checkout-expired', expiredAddress, 'This payment has expired');
  await visit('checkout-unknown', `${checkout.origin}/c/pay/cs_test_unknown`, 'No such payment');

  await visit('unknown-session', `${url}/top-up/complete?session_id=cs_test_unknown`, 'Unknown purchase');
  await visit('no-session', `${url}/top-up/complete`, 'That did not work');
  await visit('bad-query', `${url}/top-up?amount=1&amount=2`, 'That did not work');
  await visit('not-now', `${down.url}/top-up/complete?session_id=cs_test_1`, 'The card processor does not answer');
  await visit('card-off', `${off.url}/top-up`, 'Add speech credit');
  await visit('card-off-return', `${off.url}/top-up/complete?session_id=cs_test_1`, 'That did not work');
  for (let purchases = 0; purchases < 3; purchases++) {
    await page.goto(`${url}/top-up`);
    await pay();
  }
  await look('too-many', 'That did not work');
  assert.deepEqual(all, []);
});
