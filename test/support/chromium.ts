import { accessSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { AxeResults } from 'axe-core';
import { type Browser, chromium, type Page } from 'playwright-core';
import type { Test } from 'tap';

/** Where screenshots go, for a person to look at; none are taken without it. */
const SCREENSHOTS = process.env.SCREENSHOTS;

const CANDIDATES = [
  process.env.CHROMIUM_PATH,
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
];

const executablePath = CANDIDATES.find((path) => {
  try {
    accessSync(path ?? '');
    return true;
  } catch {
    return false;
  }
});

/** Why browser tests are skipped; false where Chromium is installed. */
export const withoutChromium: string | false = executablePath
  ? false
  : 'Chromium is not installed (apt-get install chromium, or set CHROMIUM_PATH)';

/** A headless Chromium that makes no connections of its own. */
export async function openBrowser(t: Test): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: executablePath ?? '',
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
  t.teardown(() => browser.close());
  return browser;
}

/** Keeps a picture of the whole page, when a person wants to look at it. */
export async function shot(page: Page, name: string): Promise<void> {
  if (!SCREENSHOTS) return;
  await mkdir(SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`), fullPage: true });
}

/** The accessibility rules that the page breaks as it is shown now. Its context bypasses the page's policy. */
export async function brokenRules(page: Page): Promise<string[]> {
  await page.addScriptTag({ path: createRequire(import.meta.url).resolve('axe-core/axe.min.js') });
  const { violations } = await page.evaluate<AxeResults>("axe.run({ rules: { 'target-size': { enabled: true } } })");
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
}

/** What is wider than its place as the page is shown now. */
export const cutElements = (page: Page): Promise<string[]> =>
  page.evaluate<string[]>(`
    [document.documentElement, ...document.querySelectorAll('input[readonly], pre, dd, p, h1, h2, td')]
      .filter((element) => element.scrollWidth > element.clientWidth && getComputedStyle(element).display !== 'inline')
      .map((element) => 'cut: ' + element.tagName)`);
