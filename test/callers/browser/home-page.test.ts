import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { BrowserContextOptions, Page, Request } from 'playwright-core';
import { type Test, t, test } from 'tap';
import type { LocalAccount } from 'viem';
import { wallet as fundedWallet, testChain } from '../../support/chain.ts';
import { brokenRules, cutElements, openBrowser, shot, withoutChromium as skip } from '../../support/chromium.ts';
import { startCardGateway, startPaidGateway } from '../../support/client.ts';
import { mineSteadily } from '../../support/deposit.ts';
import { silentMp3 } from '../../support/silent-audio.ts';
import { ControlledStream, mp3, wav } from '../../support/stub-upstream.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { makeSamples } from '../../support/voice-samples.ts';
import { PRICE } from '../../support/x402.ts';

const run = promisify(execFile);
const { chain, skip: withoutChain } = await testChain();
const browser = skip ? undefined : await openBrowser(t);
const gateway = await startCardGateway(t);
const PAID = { skip: skip || withoutChain };
const EXAMPLE_PRICE = 1_170n;
/** What Tab stops at. Of radio buttons that is the chosen one. */
const FOCUSABLE =
  'a[href], button, input:not([type=hidden], [type=radio]:not(:checked)), select, textarea, summary, [tabindex="0"]';

async function openPage(t: Test, options: BrowserContextOptions = {}): Promise<Page> {
  const context = await (browser ?? assert.fail()).newContext(options);
  t.teardown(() => context.close());
  return context.newPage();
}

const isPlaying = (page: Page): Promise<void> =>
  page.evaluate(`new Promise((resolve) => {
    const audio = document.querySelector('audio');
    const check = () => audio.currentTime > 0 && resolve();
    audio.addEventListener('timeupdate', check);
    check();
  })`);
const done = (page: Page) => page.getByText(/^Done\. You paid/).waitFor();
const speak = (page: Page) => page.getByRole('button', { name: /^Speak/ });

/** The page with an account's id filled in. */
async function openPaidPage(t: Test, options?: BrowserContextOptions) {
  const page = await openPage(t, options);
  const account = await gateway.fund(500);
  await page.goto(gateway.config.baseUrl, { waitUntil: 'networkidle' });
  await page.getByLabel('Account id').fill(account);
  return { page, account };
}

test('a visitor with an account hears a voice in two steps, by keyboard, with 80 KB', { skip }, async (t) => {
  gateway.upstream.mode = mp3();
  const account = await gateway.fund(500);
  const page = await openPage(t);
  const finished: Request[] = [];
  const complaints: string[] = [];
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('requestfailed', (request) => complaints.push(request.url()));
  page.on('requestfinished', (request) => finished.push(request));
  await page.goto(gateway.config.baseUrl, { waitUntil: 'networkidle' });
  t.equal(finished.length, 1, 'the page is one request');
  t.equal(await speak(page).innerText(), 'Speak for $0.00117');
  // 1. Give the account id. 2. Speak.
  const id = page.getByLabel('Account id');
  while (!(await id.evaluate((input) => input.ownerDocument.activeElement === input))) await page.keyboard.press('Tab');
  await page.keyboard.type(account);
  await page.keyboard.press('Enter');
  await isPlaying(page);
  await done(page);
  t.equal(await gateway.balance(account), 5_000_000n - EXAMPLE_PRICE);
  await page.getByText('Balance $4.99883').waitFor();
  const urls = finished.map((request) => new URL(request.url())).filter(({ protocol }) => protocol !== 'blob:');
  t.strictSame([...new Set(urls.map(({ origin }) => origin))], [gateway.config.baseUrl]);
  const paths = urls.map(({ pathname }) => pathname.replace(/[0-9a-f-]{36}/, 'ID'));
  t.strictSame(paths.sort(), ['/', '/credits/ID', '/tts']);
  const sizes = await Promise.all(finished.map((request) => request.sizes()));
  const bytes = sizes.reduce((sum, size) => sum + size.responseHeadersSize + size.responseBodySize, 0);
  t.ok(bytes < 80 * 1024, `${bytes} bytes`);
  t.equal(await page.getByRole('link', { name: 'Download' }).getAttribute('download'), 'speech.mp3');
  await page.reload();
  t.equal(await id.inputValue(), account, 'kept in the tab');
  t.strictSame(complaints, [], 'no policy was broken and nothing was missing');
});

test('a visitor without an account hears a sample of the chosen voice', { skip }, async (t) => {
  const page = await openPage(t);
  const hear = page.getByRole('button', { name: 'Hear this voice, free' });
  await page.goto(gateway.config.baseUrl);
  await page.getByLabel('Voice').selectOption('provider-a_nova');
  t.equal(await hear.isVisible(), false, 'there is none yet');
  t.equal((await makeSamples(gateway)).code, 0);
  const { requests } = gateway.upstream;
  const spoken = requests.length;
  await gateway.call('/tts/voices/provider-a_nova/sample');
  await page.reload();
  await page.getByLabel('Voice').selectOption({ label: 'Nova · TTS 1' });
  await hear.press('Enter');
  await isPlaying(page);
  await page.getByRole('status').getByText('This is a sample. Nothing was charged.').waitFor();
  t.equal(requests.length, spoken, 'it was spoken before');
  t.equal(await page.getByLabel('Account id').inputValue(), '');
});

test('Tab reaches each control in the order of the page, with a visible focus', { skip }, async (t) => {
  await makeSamples(gateway);
  const page = await openPage(t);
  await page.goto(gateway.config.baseUrl);
  await page.getByRole('button', { name: 'Hear this voice, free' }).waitFor();
  const controls = await page.evaluate<string[]>(`[...document.querySelectorAll(${JSON.stringify(FOCUSABLE)})]
    .filter((element) => element.checkVisibility() && !element.disabled)
    .map((element) => element.outerHTML)`);
  const reached: { html: string; outline: string }[] = [];
  for (const _ of controls) {
    await page.keyboard.press('Tab');
    reached.push(
      await page.evaluate<(typeof reached)[number]>(`(() => {
        const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
        return { html: document.activeElement.outerHTML, outline: outlineStyle + ' ' + outlineWidth };
      })()`),
    );
  }
  const htmls = reached.map(({ html }) => html);
  t.strictSame(htmls, controls);
  t.strictSame([...new Set(reached.map(({ outline }) => outline))], ['solid 3px']);
});

test('audio plays while it arrives, and what the player cannot take is collected', { skip }, async (t) => {
  for (const isFull of [false, true]) {
    const stream = new ControlledStream();
    gateway.upstream.mode = stream.mode;
    const { page } = await openPaidPage(t);
    if (isFull)
      await page.evaluate(`(() => {
        const { appendBuffer } = SourceBuffer.prototype;
        let appended = 0;
        SourceBuffer.prototype.appendBuffer = function (value) {
          if (appended++ > 0) throw new DOMException('full', 'QuotaExceededError');
          appendBuffer.call(this, value);
        };
      })()`);
    await speak(page).click();
    await stream.opened;
    await stream.write(silentMp3(2000));
    await isPlaying(page);
    t.equal(await page.getByText('Speaking…').isVisible(), true);
    await stream.write(silentMp3(2000));
    stream.end();
    await done(page);
    await page.waitForFunction("document.querySelector('audio').duration > 3");
  }
});

test('WAV is played once it is whole', { skip }, async (t) => {
  gateway.upstream.mode = wav();
  const { page } = await openPaidPage(t);
  await speak(page).click();
  await isPlaying(page);
  t.equal(await page.getByRole('link', { name: 'Download' }).getAttribute('download'), 'speech.wav');
});

test('the page says why nothing is spoken, and what to do', { skip }, async (t) => {
  const page = await openPage(t);
  await page.goto(gateway.config.baseUrl);
  const status = page.getByRole('status');
  await page.getByLabel('Account id').fill('6b1f0f9e-0000-4000-8000-000000000000');
  await speak(page).click();
  await status
    .getByText('There is no account with this id. Check the id, or add credit. Nothing was charged.')
    .waitFor();
  t.match((await status.getByRole('link').getAttribute('href')) ?? '', /\/top-up\?amount=500$/);
  const account = await gateway.fund(500);
  await page.getByLabel('Account id').fill(account);
  const stream = new ControlledStream();
  gateway.upstream.mode = stream.mode;
  await speak(page).click();
  await stream.opened;
  await stream.write(silentMp3(2000));
  await isPlaying(page);
  stream.reset();
  await status.getByText('The audio ended early').waitFor();
  await page.getByLabel('Text').fill('x'.repeat(4097));
  await page.getByText('4,097 of 4,096 characters. Shorten the text.').waitFor();
  await page.getByLabel('Text').fill('  Hello world  ');
  t.equal(await speak(page).innerText(), 'Speak for $0.000198');
  await page.getByLabel('Voice').selectOption({ label: 'Nova · TTS 1 HD' });
  t.equal(await speak(page).innerText(), 'Speak for $0.000396');
});

test('the copied programs send the text as it was typed', { skip }, async (t) => {
  gateway.upstream.mode = mp3();
  const { page } = await openPaidPage(t, { permissions: ['clipboard-read', 'clipboard-write'] });
  const text = `It's "so" $(id) \`id\` $HOME !! \\n \\' </script>\n— ünï 🎉`;
  await page.getByLabel('Text').fill(text);
  const folder = await temporaryFolder(t);
  const programs: [name: string, command: string, ...argv: string[]][] = [
    ['curl', 'sh', '-c'],
    ['JavaScript', process.execPath, '--input-type=module', '-e'],
    ['Python', 'python3', '-c'],
  ];
  for (const [index, [name, command, ...argv]] of programs.entries()) {
    const copy = page.locator('.copy').nth(index);
    if (index > 0) await page.getByText(name, { exact: true }).click();
    await copy.click();
    await copy.and(page.getByText('Copied')).waitFor();
    await run(command, [...argv, await page.evaluate<string>('navigator.clipboard.readText()')], { cwd: folder });
    t.strictSame((await readFile(join(folder, 'speech.mp3'))).subarray(0, 2), Buffer.from([0xff, 0xfb]), name);
    t.equal(gateway.upstream.requests.at(-1)?.body?.input, text, name);
    await rm(join(folder, 'speech.mp3'));
  }
});

/** An injected wallet (EIP-1193) and what it was asked for. */
async function injectWallet(page: Page, wallet: LocalAccount): Promise<string[]> {
  const asked: string[] = [];
  await page.exposeFunction('askWallet', async ({ method, params }: { method: string; params: string[] }) => {
    asked.push(method);
    if (method === 'eth_requestAccounts') return [wallet.address];
    if (method !== 'eth_signTypedData_v4') return null;
    const { domain, types, primaryType, message } = JSON.parse(params[1] ?? '');
    return wallet.signTypedData({ domain, types, primaryType, message });
  });
  await page.addInitScript('globalThis.ethereum = { request: (request) => globalThis.askWallet(request) }');
  return asked;
}

test('a wallet pays, deposits and signs each request; a reload forgets no payment', PAID, async (t) => {
  const gateway = await startPaidGateway(t, chain);
  const page = await openPage(t, { viewport: { width: 375, height: 800 } });
  mineSteadily(t, chain);
  const asked = await injectWallet(page, await fundedWallet(chain.client, 10_000_000n));
  const signatures = () => asked.filter((method) => method === 'eth_signTypedData_v4').length;
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(String(error)));
  const finish = page.getByRole('button', { name: 'Finish this payment' });
  const reloadUnanswered = async (path: string, click: () => Promise<void>) => {
    const paid = new Promise<void>((resolve) =>
      page.route(path, async (route) => {
        if (!route.request().headers()['payment-signature']) return route.continue();
        await route.fetch();
        resolve();
      }),
    );
    await click();
    await paid;
    // Not the other way round: without a route the browser would send the request that is held.
    await page.reload();
    await page.unroute(path);
  };
  await page.goto(gateway.config.baseUrl);
  t.equal(await finish.isVisible(), false, 'nothing is signed yet');
  await page.getByLabel('Text').fill('Hello world');
  await page.getByLabel('Wallet (USDC)').check();
  await reloadUnanswered('**/x402/tts', () => speak(page).click());
  t.strictSame(asked, ['eth_requestAccounts', 'wallet_switchEthereumChain', 'eth_signTypedData_v4']);
  await page.getByText('You signed a payment of $0.000198 for “Hello world”').waitFor();
  await shot(page, 'home-unfinished-375');
  await finish.click();
  await isPlaying(page);
  await done(page);
  t.equal(await finish.isVisible(), false, 'it is finished');
  t.equal(await gateway.revenue(), PRICE);

  await page.getByLabel('Text').fill('Grüße, world');
  await page.getByLabel('Prepaid (USDC)').check();
  await speak(page).click();
  await page.getByRole('status').getByText('This wallet has no prepaid balance. Deposit first.').waitFor();
  await page.getByLabel('Deposit in US dollars').fill('0.01');
  await page.getByRole('button', { name: 'Deposit' }).click();
  t.equal(await page.locator('#amount:invalid').count(), 1, 'below the least deposit');
  await page.getByLabel('Deposit in US dollars').fill('0.25');
  await reloadUnanswered('**/x402/deposit', () => page.getByRole('button', { name: 'Deposit' }).click());
  await page.getByText('You signed a payment of $0.25 for a deposit').waitFor();
  await finish.click();
  await page.getByText('Deposited $0.25.').waitFor();
  await page.reload();
  t.equal(await finish.isVisible(), false, 'nor after a reload');
  t.equal(await gateway.revenue(), PRICE + 250_000n);
  t.equal(signatures(), 3, 'the payment, the refused request and the deposit');

  await page.getByLabel('Text').fill('Grüße, world');
  await page.getByLabel('Prepaid (USDC)').check();
  for (const spoken of [1, 2]) {
    await speak(page).click();
    await page.getByText(`Prepaid balance $${(250_000 - spoken * 12 * 18) / 1e6}.`).waitFor();
    await done(page);
  }
  t.equal(await gateway.revenue(), PRICE + 250_000n);
  t.strictSame(complaints, []);
});

test('a payment that expired unsent is given up, uncharged, after a reload', PAID, async (t) => {
  const gateway = await startPaidGateway(t, chain);
  const page = await openPage(t);
  await injectWallet(page, await fundedWallet(chain.client, 10_000n));
  await page.goto(gateway.config.baseUrl);
  await page.getByLabel('Wallet (USDC)').check();
  const unsent = new Promise<void>((resolve) =>
    page.route('**/x402/tts', async (route) => {
      if (route.request().headers()['payment-signature']) return resolve(route.abort());
      const response = await route.fetch();
      const date = new Date(Date.now() - 3_600_000).toUTCString();
      return route.fulfill({ response, headers: { ...response.headers(), date } });
    }),
  );
  await speak(page).click();
  await unsent;
  await page.reload();
  await page.unroute('**/x402/tts');
  const finish = page.getByRole('button', { name: 'Finish this payment' });
  await finish.click();
  await page.getByRole('status').getByText('You were not charged.').waitFor();
  t.equal(await finish.isVisible(), false, 'it is over');
  t.equal(await gateway.revenue(), 0n);
});

test('without script the page shows the request, the prices and how to pay', { skip }, async (t) => {
  const page = await openPage(t, { javaScriptEnabled: false });
  await page.goto(gateway.config.baseUrl);
  for (const shown of ['curl -f -o speech.mp3', '$0.018', 'Prepaid USDC'])
    t.equal(await page.getByText(shown).first().isVisible(), true, shown);
  t.equal(await page.locator('noscript p').isVisible(), true);
  t.equal(await page.getByRole('button').count(), 0, 'nothing that does not work');
  await page.getByText('Python', { exact: true }).click();
  t.equal(await page.getByText('import json, urllib.request').isVisible(), true);
});

test('the pages are accessible from 320 px on, light and dark, at 200 %', { skip }, async (t) => {
  const gateway = await startCardGateway(t, { SELLER_NAME: 'Acme', TERMS_URL: 'https://acme.example/terms' });
  await makeSamples(gateway);
  const all: string[] = [];
  const look = async (name: string, page: Page) => {
    await shot(page, name);
    // The rules are slow: the narrowest page and the dark one are checked.
    const findings = [...(/320|1280-dark/.test(name) ? await brokenRules(page) : []), ...(await cutElements(page))];
    all.push(...findings.map((finding) => `${name}: ${finding}`));
  };
  for (const [width, colorScheme, deviceScaleFactor] of [
    [320, 'light', 1],
    [640, 'light', 2],
    [1280, 'dark', 1],
  ] as const) {
    const viewport = { width, height: 800 };
    const page = await openPage(t, { bypassCSP: true, viewport, colorScheme, deviceScaleFactor });
    await page.goto(gateway.config.baseUrl);
    await page.getByText('JavaScript', { exact: true }).click();
    await page.getByLabel('Account id').fill(await gateway.fund(500));
    await speak(page).click();
    await done(page);
    await look(`home-${width}-${colorScheme}`, page);
    await page.getByLabel('Prepaid (USDC)').check();
    await look(`home-prepaid-${width}-${colorScheme}`, page);
    await page.goto(`${gateway.config.baseUrl}/docs`);
    await page.getByText('What is signed').click();
    await look(`docs-${width}-${colorScheme}`, page);
    await page.goto(`${gateway.config.baseUrl}/tts?text=Hello`);
    await look(`402-${width}-${colorScheme}`, page);
  }
  t.strictSame(all, []);
});
